/** A machine behind a real gateway, a service that answers on it, and callers with tickets of the deployment's own key. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { create, toBinary } from '@bufbuild/protobuf';
import { carryTunnel } from '../../cli/tunnels/carry.ts';
import { type TunnelConfig, tunnelSection } from '../../daemon/tunnel/config.ts';
import type { TunnelLimits } from '../../domain/tunnels/limits.ts';
import { storedDesiredState } from '../../pki/envelope/index.ts';
import { type ExecTicketIssuer, encodeTicketKeys, execTicketIssuer } from '../../pki/exec/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { NodeSpecSchema } from '../../proto/index.ts';
import { publishTrust, type RealGateway, startRealGateway } from '../daemon/real-gateway.ts';
import type { Stage } from '../daemon/stage.ts';
import type { Member } from '../fakes/fleet.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { gatewayName } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';

export const ticketIssuer = 'https://compute.example.com';

export interface Service {
  readonly port: number;
  readonly sockets: Set<Socket>;
  stop(): Promise<void>;
}

/** Listens on loopback; what it does with a connection the test says. */
export async function startService(onSocket: (socket: Socket) => void): Promise<Service> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    onSocket(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    sockets,
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

export const echo = (socket: Socket): void => void socket.pipe(socket);

export interface Machine {
  readonly member: Member;
  readonly gateway: RealGateway;
  readonly store: MemoryStore;
  readonly issuer: ExecTicketIssuer;
  ticket(change?: Partial<Parameters<ExecTicketIssuer['issue']>[0]>): Promise<string>;
}

export interface MachineOptions {
  readonly config: Partial<TunnelConfig>;
  readonly limits?: TunnelLimits;
  /** A machine of another gateway's, when there is one already. */
  readonly gateway?: RealGateway & { readonly store: MemoryStore };
  readonly nodeId?: string;
}

/** Gives a node the desired state that names the issuer of its tickets. */
export async function giveAccess(
  stage: Stage,
  { store, nodeId, jwks, generation = 1 }: { store: MemoryStore; nodeId: string; jwks: readonly string[]; generation?: number },
) {
  const { workerA, trustDomain } = stage.deployment;
  const spec = toBinary(NodeSpecSchema, create(NodeSpecSchema, { access: { jwks: [...jwks], ticketIssuer } }));
  store.desired.set(nodeId, { generation, ...(await storedDesiredState(workerA, { nodeId, generation, trustDomain, spec })) });
}

export async function startMachine(stage: Stage, { config, limits, nodeId = 'node-1', gateway: given }: MachineOptions): Promise<Machine> {
  const { bundle, rootA } = stage.deployment;
  const issuer = execTicketIssuer(bundle, { issuer: ticketIssuer });
  const store = given?.store ?? new MemoryStore();
  await giveAccess(stage, { store, nodeId, jwks: encodeTicketKeys(issuer.jwks()) });
  if (given === undefined) await publishTrust(stage.deployment, store, { version: 1, roots: [rootA] });
  const gateway = given ?? (await startRealGateway(stage.deployment, { store }));
  if (given === undefined) stage.running.push(gateway);
  const tunnels = { config: tunnelSection.parse(config), ...(limits === undefined ? {} : { limits }) };
  const member = await stage.daemonAt(gateway.url, { tunnels, node: { nodeId } });
  await eventually(
    'the machine has its desired state',
    () => member.agent.state.spec.current !== undefined && member.agent.link.current !== undefined,
  );
  const ticket: Machine['ticket'] = async (change) =>
    (await issuer.issue({ nodeId, sessionId: 's-1', operation: 'node.ssh', actor: 'ada', ...change })).ticket;
  return { member, gateway, store, issuer, ticket };
}

export interface Caller {
  readonly input: PassThrough;
  readonly said: string[];
  /** All that came, when the tunnel is over; rejects with what ended it otherwise. */
  readonly done: Promise<Buffer>;
  /** What came until now. */
  received(): Buffer;
  readonly output: PassThrough;
}

export interface CallerOptions {
  readonly ticket: string;
  readonly url: string;
  readonly renew?: () => Promise<string>;
  readonly renewEveryMs?: number;
}

/** The caller's end, as the command line runs it. */
export function startCaller(stage: Stage, { ticket, url, renew, renewEveryMs }: CallerOptions): Caller {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const chunks: Buffer[] = [];
  const said: string[] = [];
  output.on('data', (chunk: Buffer) => chunks.push(chunk));
  const gateway = { gatewayUrl: url, gatewayServerName: gatewayName, servingCaPin: spkiPin(stage.deployment.bundle.servingCa.spki) };
  const done = carryTunnel({
    offer: { ticket, gateway },
    input,
    output,
    now: Date.now,
    renew: renew ?? (() => assert.fail('no new ticket is asked for')),
    say: (line) => void said.push(line),
    ...(renewEveryMs === undefined ? {} : { renewEveryMs }),
  }).then(() => Buffer.concat(chunks));
  done.catch(() => undefined);
  return { input, output, said, done, received: () => Buffer.concat(chunks) };
}
