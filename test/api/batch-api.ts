/** The real operator API over a real database, with tokens of an issuer and of the operator; workflows are only remembered. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { createConsolePorts } from '../../api/console-ports.ts';
import { createIdentity } from '../../api/identity.ts';
import { createOperatorApp } from '../../api/operator.ts';
import { createOperatorPorts } from '../../api/operator-ports.ts';
import type { Database } from '../../drizzle/client.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { testBundle } from '../services/support.ts';

export const operatorToken = 't'.repeat(43);
export const deploymentSecret = 'a secret of thirty-two characters at least';
const issuer = 'https://login.example';
const audience = 'better-compute';

export interface BatchApi {
  readonly url: string;
  readonly started: string[];
  readonly nudged: string[];
  readonly commandsAsked: unknown[];
  readonly rebootsAsked: unknown[];
  readonly metalAsked: [string, unknown][];
  /** What a run answers to words; null: they wait for a worker. */
  readonly steering: { refuses: Error | null };
  /** Of enrolments over SSH: what was started and cancelled; what the start of one answers. */
  readonly enrolling: { readonly asked: [string, unknown][]; refuses: Error | null };
  sign(claims: Record<string, unknown>, over?: { audience?: string; issuer?: string; expiresIn?: string }): Promise<string>;
  close(): Promise<void>;
}

export async function startBatchApi(
  db: Database,
  over: {
    readonly secret?: string | null;
    readonly ticketIssuer?: string;
    readonly gatewayUrl?: string;
    readonly gatewayName?: string;
    readonly bundle?: PkiBundle;
  } = {},
): Promise<BatchApi> {
  const remembered = {
    started: [] as string[],
    nudged: [] as string[],
    commandsAsked: [] as unknown[],
    rebootsAsked: [] as unknown[],
    metalAsked: [] as [string, unknown][],
    steering: { refuses: null as Error | null },
    enrolling: { asked: [] as [string, unknown][], refuses: null as Error | null },
  };
  const { publicKey, privateKey } = await generateKeyPair('ES256');
  const jwks = `${scratchFolder()}/jwks.json`;
  writeFileSync(jwks, JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'k1', alg: 'ES256' }] }));
  const bundle = over.bundle ?? (await testBundle());
  const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined } as never;
  const ports = createOperatorPorts({
    ticketIssuer: over.ticketIssuer ?? null,
    db,
    bundle: () => bundle,
    workflows: {
      startRevoke: async () => ({ workflowId: 'w', runId: 'r' }),
      startSetCredential: async () => ({ workflowId: 'w', runId: 'r' }),
      startSshRevoke: async () => ({ workflowId: 'w', runId: 'r' }),
      startCommands: async (input) => {
        remembered.commandsAsked.push(input);
        return { workflowId: `command/${input.unique}`, runId: 'r' };
      },
      startReboots: async (input) => {
        remembered.rebootsAsked.push(input);
        return { workflowId: `reboot/${input.unique}`, runId: 'r' };
      },
      startEnrolment: async (input) => {
        if (remembered.enrolling.refuses !== null) throw remembered.enrolling.refuses;
        remembered.enrolling.asked.push(['start', input]);
        return { workflowId: `node/${input.nodeId}/identity`, runId: 'run-6' };
      },
      cancelEnrolment: async ({ nodeId }) => void remembered.enrolling.asked.push(['cancel', nodeId]),
      listUnwatched: async () => [],
      listUnwatchedEnrolments: async () => [],
      listStuck: async () => [],
    },
    batchWorkflows: {
      start: async (id) => void remembered.started.push(id),
      nudge: async (id) => void remembered.nudged.push(id),
    },
    metalWorkflows: {
      start: async (kind, order) => {
        remembered.metalAsked.push([kind, order]);
        return { workflowId: `machine/${order.machineId}/${kind}`, runId: 'r' };
      },
      steer: async (workflowId, what, said) => {
        remembered.metalAsked.push([what, { workflowId, ...said }]);
        if (remembered.steering.refuses !== null) throw remembered.steering.refuses;
        return null;
      },
      status: async () => null,
      startReimage: async (input) => {
        remembered.metalAsked.push(['reimage', input]);
        return { workflowId: `fleet/${input.run}/reimage`, runId: 'r' };
      },
    },
    gateway: { url: over.gatewayUrl, name: over.gatewayName },
    workload: null,
    secret: over.secret === undefined ? deploymentSecret : over.secret,
    log: quiet,
    now: Date.now,
  });
  const bearer = operatorToken;
  const identity = createIdentity({ bearer, oidc: { issuer, audience, jwks } });
  const app = createOperatorApp({ ports, bearer, identity, console: createConsolePorts(identity, ports), version: '0.1.0', log: quiet });
  const server = createServer(app);
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return {
    ...remembered,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sign: (claims, over = {}) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: 'ES256', kid: 'k1' })
        .setIssuer(over.issuer ?? issuer)
        .setAudience(over.audience ?? audience)
        .setIssuedAt()
        .setExpirationTime(over.expiresIn ?? '5m')
        .sign(privateKey),
    close() {
      removeScratchFolders();
      server.closeAllConnections();
      return new Promise<void>((resolve) => void server.close(() => resolve()));
    },
  };
}
