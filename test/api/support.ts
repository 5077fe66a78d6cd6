/** A real operator API on a real port over ports that live in memory: what api and cli tests talk to. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createOperatorApp } from '../../api/operator.ts';
import type { CommandsRequest, OperatorPorts, RebootRequest, TokenRequest } from '../../api/ports.ts';
import type { SetLagView, StuckItem } from '../../api/stuck.ts';
import { ControlError } from '../../domain/errors.ts';
import type { WorkloadIssuer } from '../../pki/workload/index.ts';
import type { JoinRequestView } from '../../services/join/approvals.ts';
import type { UntoldBoots } from '../../services/metal/boot-told.ts';
import type { AbsentNode, AuditView, CommandView, NodeView, TrustView } from '../../services/operator-reads.ts';
import type { FailedSection } from '../../services/section-faults.ts';
import type { SshCertificateView } from '../../services/ssh-certificates.ts';
import type { WaitingCommand } from '../../services/stuck.ts';
import type { TenantView } from '../../services/tenants.ts';
import { viewsOf } from '../../services/workload-keys.ts';
import { createFakeEnrolments } from './fake-enrolments.ts';
import { createFakeMachines, type FakeMachines, machinePortsOf } from './machine-support.ts';

export const now = Date.UTC(2030, 0, 1, 12);
export const bearer = 'b'.repeat(43);

export const aNode = (id: string, over: Partial<NodeView> = {}): NodeView => ({
  id,
  siteId: 'default',
  role: 'node',
  state: 'active',
  generation: 1,
  hostname: `${id}.example`,
  createdAt: now - 86_400_000,
  connected: true,
  session: {
    gatewayId: 'gw-1',
    epoch: 3,
    startedAt: now - 60_000,
    lastSeenAt: now - 1_000,
    trustVersion: 2,
    daemonVersion: '0.1.0',
    specGeneration: 3,
    sections: [],
  },
  lastSeenAt: now - 1_000,
  certificate: { serial: '01ab', notAfter: now + 3_600_000, revokedAt: null },
  openCommands: 0,
  ...over,
});

export const aJoin = (id: string, over: Partial<JoinRequestView> = {}): JoinRequestView => ({
  id,
  attestor: 'join-token',
  role: 'node',
  nodeId: null,
  siteId: 'eu-1',
  csrSha256: id.repeat(64).slice(0, 64),
  hardware: { hostname: `host-${id}` },
  firstAskedAt: now - 90_000,
  lastAskedAt: now - 5_000,
  state: 'waiting',
  decidedAt: null,
  decidedBy: '',
  reason: '',
  ...over,
});

export const aCommand = (id: string, over: Partial<CommandView> = {}): CommandView => ({
  id,
  nodeId: 'node-a',
  seq: 1,
  kind: 'inventory.refresh',
  state: 'done',
  requestedBy: 'ann',
  createdAt: now - 5_000,
  deadline: now + 55_000,
  ackedAt: now - 4_000,
  finishedAt: now - 3_000,
  rejectReason: null,
  batchId: null,
  signerRoot: 'a'.repeat(64),
  result: { outcome: 1, errorCode: '', errorMessage: '', payload: '' },
  ...over,
});

/** The deployment the API shows; tests change it as they like and read what was asked of it. */
export interface FakeDeployment {
  nodes: NodeView[];
  commands: CommandView[];
  absent: AbsentNode[];
  setLag: SetLagView | null;
  waiting: WaitingCommand[];
  failedSections: FailedSection[];
  untoldBoots: UntoldBoots[];
  joins: JoinRequestView[];
  audit: AuditView[];
  trust: TrustView | null;
  evidence: Map<string, { document: Uint8Array; signature: Uint8Array }[]>;
  auditKey: Uint8Array;
  stuckWorkflows: StuckItem[] | Error;
  readonly tokensAsked: TokenRequest[];
  readonly revokesAsked: { nodeId: string; actor: string; reason: string }[];
  readonly sshCertificates: SshCertificateView[];
  readonly credentialsAsked: { nodeId: string; name: string; ref: string | null; actor: string; reason: string }[];
  readonly sshRevokesAsked: { serial: string; actor: string; reason: string }[];
  readonly commandsAsked: (CommandsRequest & { unique: string })[];
  readonly rebootsAsked: (RebootRequest & { unique: string })[];
  readonly tenants: TenantView[];
  readonly metal: FakeMachines;
  /** null: no issuer is configured. */
  workload: WorkloadIssuer | null;
}

export const createDeployment = (): FakeDeployment => ({
  nodes: [],
  commands: [],
  absent: [],
  setLag: null,
  waiting: [],
  failedSections: [],
  untoldBoots: [],
  joins: [],
  audit: [],
  trust: null,
  evidence: new Map(),
  auditKey: new Uint8Array([1, 2, 3]),
  stuckWorkflows: [],
  tokensAsked: [],
  revokesAsked: [],
  sshCertificates: [],
  credentialsAsked: [],
  sshRevokesAsked: [],
  commandsAsked: [],
  rebootsAsked: [],
  tenants: [],
  metal: createFakeMachines(),
  workload: null,
});

const noTunnels = async (): Promise<never> => {
  throw new ControlError('UNSUPPORTED', 'this deployment has no tunnels');
};

const orNotFound = <T>(value: T | undefined | null, message: string): T => {
  if (value === undefined || value === null) throw new ControlError('NOT_FOUND', message);
  return value;
};

export function portsOf(deployment: FakeDeployment): OperatorPorts {
  const running = new Set<string>();
  return {
    now: () => now,
    auditKey: () => deployment.auditKey,
    tunnels: {
      open: () => noTunnels(),
      exec: () => noTunnels(),
      place: () => noTunnels(),
      end: () => noTunnels(),
      list: async () => [],
    },
    enrolments: createFakeEnrolments(),
    reads: {
      listNodes: async ({ after, limit, state }) =>
        deployment.nodes.filter((node) => node.id > after && (state === undefined || node.state === state)).slice(0, limit),
      getNode: async (id) =>
        orNotFound(
          deployment.nodes.find((node) => node.id === id),
          `no node is called ${id}`,
        ),
      getCommands: async (id) => {
        const found = deployment.commands.filter((command) => command.id === id || command.id.startsWith(`${id}/`));
        return orNotFound(found.length === 0 ? null : found, `no command is called ${id}`);
      },
      listOpenBatches: async () => [],
      listWaitingCommands: async ({ limit }) => deployment.waiting.slice(0, limit),
      listFailedSections: async (limit) => deployment.failedSections.slice(0, limit),
      listAbsentNodes: async (limit) => deployment.absent.slice(0, limit),
      listUntoldBoots: async (limit) => deployment.untoldBoots.slice(0, limit),
      readSetLag: async () => deployment.setLag,
      getTrust: async () => orNotFound(deployment.trust, 'no process has published a trust bundle yet'),
      listAudit: async ({ after, limit }) => deployment.audit.filter((event) => event.seq > after).slice(0, limit),
      listSshCertificates: async ({ nodeId, limit }) =>
        deployment.sshCertificates.filter((certificate) => nodeId === null || certificate.nodeId === nodeId).slice(0, limit),
      getSshCertificate: async (serial) =>
        orNotFound(
          deployment.sshCertificates.find((certificate) => certificate.serial === serial),
          `no certificate ${serial} was issued here`,
        ),
      listRotations: async () => [...deployment.evidence.keys()].map((id) => ({ id, stages: ['add'], firstAt: now, lastAt: now })),
      getEvidence: async (id) => orNotFound(deployment.evidence.get(id), `rotation ${id} has left no evidence`),
    },
    tokens: {
      create: async (request) => {
        deployment.tokensAsked.push(request);
        return { tokenId: 'tok-1', token: 'bcj1.sealed', join: 'bcjoin1.all', expiresAt: now + request.lifetimeMs };
      },
    },
    workflows: {
      startRevoke: async (input) => {
        const workflowId = `node/${input.nodeId}/revoke`;
        if (running.has(workflowId)) throw new ControlError('INVALID_STATE', `workflow ${workflowId} is already running`);
        running.add(workflowId);
        deployment.revokesAsked.push(input);
        return { workflowId, runId: 'run-1' };
      },
      startSshRevoke: async (input) => {
        deployment.sshRevokesAsked.push(input);
        return { workflowId: `ssh/${input.serial}/revoke`, runId: 'run-3' };
      },
      startSetCredential: async (input) => {
        deployment.credentialsAsked.push(input);
        return { workflowId: `node/${input.nodeId}/credential/${input.name}`, runId: 'run-5' };
      },
      startCommands: async (input) => {
        deployment.commandsAsked.push(input);
        return { workflowId: `command/${input.unique}`, runId: 'run-2' };
      },
      startReboots: async (input) => {
        deployment.rebootsAsked.push(input);
        return { workflowId: `reboot/${input.unique}`, runId: 'run-4' };
      },
      startEnrolment: async ({ nodeId }) => ({ workflowId: `node/${nodeId}/identity`, runId: 'run-6' }),
      cancelEnrolment: async () => undefined,
      listUnwatched: async () => [],
      listUnwatchedEnrolments: async () => [],
      listStuck: async () => {
        if (deployment.stuckWorkflows instanceof Error) throw deployment.stuckWorkflows;
        return deployment.stuckWorkflows;
      },
    },
    workload: workloadPort(deployment),
    joins: {
      list: async ({ state, limit }) => deployment.joins.filter((one) => state === null || one.state === state).slice(0, limit),
      decide: async ({ id, as, actor, reason }) => {
        const found = orNotFound(
          deployment.joins.find((one) => one.id === id),
          `no join waits under the id ${id}`,
        );
        Object.assign(found, { state: as, decidedAt: now, decidedBy: actor, reason });
        return found;
      },
    },
    secrets: notKept,
    machines: machinePortsOf(deployment.metal),
    batches: batchesNotHere,
    tenants: {
      create: async ({ id }) => void deployment.tenants.push({ id, createdAt: now, deletedAt: null, nodes: 0 }),
      list: async () => deployment.tenants,
      delete: async ({ id }) => (deployment.tenants.some((tenant) => tenant.id === id) ? ['b-1', 'b-2'] : []),
    },
  };
}

/** What only a database has: the tests of it run over a real one (batches.test.ts). */
const notHere = async (): Promise<never> => {
  throw new ControlError('UNAVAILABLE', 'this deployment has no database');
};
const notKept: OperatorPorts['secrets'] = { set: notHere, list: notHere, delete: notHere };
const batchesNotHere: OperatorPorts['batches'] = {
  create: notHere,
  list: notHere,
  get: notHere,
  scope: notHere,
  overview: notHere,
  approve: notHere,
  end: notHere,
  assertMayRun: async () => undefined,
  assertOwnNodes: async () => undefined,
};

function workloadPort(deployment: FakeDeployment): OperatorPorts['workload'] {
  const issuer = (): WorkloadIssuer => {
    if (deployment.workload !== null) return deployment.workload;
    throw new ControlError('UNSUPPORTED', 'this deployment issues no workload tokens', { details: { reason: 'no-workload-issuer' } });
  };
  const step = async (kid: string, run: () => void): Promise<{ kid: string; changed: boolean }> => {
    run();
    return { kid, changed: true };
  };
  return {
    listKeys: async () => ({ issuer: issuer().issuer, keys: viewsOf(issuer()) }),
    addKey: async () => ({ ...issuer().addKey(), changed: true }),
    promoteKey: async ({ kid }) => step(kid, () => issuer().promote(kid)),
    retireKey: async ({ kid }) => step(kid, () => issuer().retire(kid)),
  };
}

export interface RunningApi {
  readonly url: string;
  readonly logged: unknown[];
  close(): Promise<void>;
}

export async function startApi(deployment: FakeDeployment): Promise<RunningApi> {
  const logged: unknown[] = [];
  const log = (...line: unknown[]): void => void logged.push(line);
  const app = createOperatorApp({
    ports: portsOf(deployment),
    bearer,
    version: '0.1.0',
    log: { info: log, warn: log, error: log } as never,
  });
  const server = createServer(app);
  return { url: await listen(server), logged, close: () => closeServer(server) };
}

export const listen = (server: Server): Promise<string> =>
  new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  });

export const closeServer = (server: Server): Promise<void> =>
  new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
}

export async function ask(url: string, init: RequestInit & { auth?: string | null } = {}): Promise<Answer> {
  const { auth = `Bearer ${bearer}`, ...rest } = init;
  const response = await fetch(url, {
    ...rest,
    headers: { ...(auth === null ? {} : { authorization: auth }), ...(rest.headers as Record<string, string>) },
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown>, headers: response.headers };
}

export const post = (url: string, body: unknown): Promise<Answer> =>
  ask(url, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  });
