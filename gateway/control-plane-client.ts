/**
 * The gateway's client of the api's internal listener: mutual TLS by the internal authority, request and response bytes
 * relayed as they are.
 *
 *   POST /internal/v1/join    body: JoinRequest bytes   → 200, JoinResponse bytes
 *   POST /internal/v1/renew   body: RenewRequest bytes, header x-bc-peer-chain: base64 DER certificates, comma-separated,
 *                             leaf first, as proved in the node's TLS handshake → 200, RenewResponse bytes
 *   POST /internal/v1/workload-token   body: WorkloadTokenRequest bytes, the same header → 200, WorkloadTokenResponse bytes
 *   POST /internal/v1/secret   body: SecretRequest bytes, the same header → 200, SecretResponse bytes
 *   POST /internal/v1/event   body: EventReport bytes, the same header → 200, EventReceipt bytes
 *
 * Any other status carries `{ code, message, details }` as JSON. A code of the table passes to the daemon as it is; what is
 * not from the table, or INTERNAL, becomes services-unavailable: a fault behind us is no verdict on the daemon.
 */
import type { IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { ControlError, isCode } from '../domain/errors.ts';
import { bounds } from '../proto/index.ts';
import { refusal } from './grpc/refusals.ts';
import type { GatewayServices } from './services.ts';
import { type CheckedMaterial, checkMaterial, type TlsMaterial } from './tls/material.ts';

export interface ControlPlaneClientOptions {
  /** https://host:port of the api's internal listener. */
  readonly url: string;
  /** The gateway's internal leaf, and the internal authority in `ca`. */
  readonly tls: TlsMaterial;
  /** The name the api's certificate must carry; default: the host of `url`. */
  readonly serverName?: string;
  readonly timeoutMs?: number;
}

export interface ControlPlaneClient extends GatewayServices {
  /**
   * Takes renewed material for the connections from now on; calls under way end on theirs (TLS-003, TLS-012).
   *
   * @throws INVALID_CONFIG, and changes nothing, when the set does not fit together (TLS-018)
   */
  setTls(tls: TlsMaterial): void;
  close(): void;
}

/** What is asked for by what it is. */
type Agents = Readonly<Record<'identity' | 'tokens' | 'secrets', Agent>>;

interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

const peerChainHeader = 'x-bc-peer-chain';

export function createControlPlaneClient({ url, tls, serverName, timeoutMs = 15_000 }: ControlPlaneClientOptions): ControlPlaneClient {
  // The internal authority is the anchor itself; the root above it also stands over the authorities of nodes.
  const agentOf = ({ key, cert, ca }: CheckedMaterial, maxSockets: number): Agent =>
    new Agent({
      key,
      cert,
      ca,
      allowPartialTrustChain: true,
      keepAlive: true,
      maxSockets,
      minVersion: 'TLSv1.3',
      maxCachedSessions: 0,
      ...(serverName === undefined ? {} : { servername: serverName }),
    });
  // Tokens (and events with them) and secrets have connections of their own: whatever machines ask for, and however slow a broker, no renewal waits behind it.
  const agentsOf = (checked: CheckedMaterial): Agents => ({
    identity: agentOf(checked, 32),
    tokens: agentOf(checked, 16),
    secrets: agentOf(checked, 32),
  });
  let material = checkMaterial(tls, null);
  let agents = agentsOf(material);
  const call = async (
    path: string,
    body: Uint8Array,
    { kind = 'identity', ...options }: { kind?: keyof Agents; maxBytes: number; headers?: Record<string, string> },
  ): Promise<Uint8Array> => {
    const answer = await post(new URL(path, url), { body, agent: agents[kind], timeoutMs, ...options });
    if (answer.status === 200) return answer.body;
    throw problemOf(answer);
  };
  /** Of a node, in the name of its chain. */
  const ofNode =
    (path: string, maxBytes: number, kind?: keyof Agents) =>
    (body: Uint8Array, { chain }: { readonly chain: readonly Uint8Array[] }): Promise<Uint8Array> =>
      call(path, body, { maxBytes, headers: { [peerChainHeader]: chainHeader(chain) }, ...(kind === undefined ? {} : { kind }) });
  return {
    join: (body) => call('/internal/v1/join', body, { maxBytes: bounds.joinResponse }),
    renew: ofNode('/internal/v1/renew', bounds.renewResponse),
    workloadToken: ofNode('/internal/v1/workload-token', bounds.workloadTokenResponse, 'tokens'),
    secret: ofNode('/internal/v1/secret', bounds.secretResponse, 'secrets'),
    event: ofNode('/internal/v1/event', bounds.eventReceipt, 'tokens'),
    setTls(next) {
      const checked = checkMaterial(next, material);
      const before = agents;
      material = checked;
      agents = agentsOf(checked);
      for (const agent of Object.values(before)) retire(agent);
    },
    close: () => Object.values(agents).forEach((agent) => agent.destroy()),
  };
}

/** Idle connections close now, busy ones when their call has ended. */
function retire(agent: Agent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}

const chainHeader = (chain: readonly Uint8Array[]): string => chain.map((der) => Buffer.from(der).toString('base64')).join(',');

interface Post {
  readonly body: Uint8Array;
  readonly agent: Agent;
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly headers?: Record<string, string>;
}

function post(url: URL, { body, agent, timeoutMs, maxBytes, headers }: Post): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const away = (cause: unknown): void => reject(refusal('services-unavailable', { cause }));
    const outgoing = httpsRequest(
      url,
      {
        method: 'POST',
        agent,
        headers: { 'content-type': 'application/x-protobuf', 'content-length': body.length, accept: 'application/x-protobuf', ...headers },
      },
      (incoming) => void readAnswer(incoming, maxBytes).then(resolve, away),
    );
    outgoing.setTimeout(timeoutMs, () => outgoing.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    outgoing.once('error', away);
    outgoing.end(body);
  });
}

async function readAnswer(incoming: IncomingMessage, maxBytes: number): Promise<Answer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of incoming as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > maxBytes) throw new Error(`an answer of more than ${maxBytes} bytes`);
    parts.push(part);
  }
  return { status: incoming.statusCode ?? 0, body: Buffer.concat(parts) };
}

function problemOf({ status, body }: Answer): ControlError {
  const problem = parseProblem(body);
  if (problem === null || problem.code === 'INTERNAL')
    return refusal('services-unavailable', { cause: new Error(`the control plane answered ${status}`) });
  return new ControlError(problem.code, problem.message, { details: problem.details });
}

function parseProblem(body: Buffer): { code: ControlError['code']; message: string; details: Record<string, unknown> } | null {
  try {
    const { code, message, details } = JSON.parse(body.toString('utf8')) as Record<string, unknown>;
    if (!isCode(code) || typeof message !== 'string') return null;
    return { code, message, details: typeof details === 'object' && details !== null ? (details as Record<string, unknown>) : {} };
  } catch {
    return null;
  }
}
