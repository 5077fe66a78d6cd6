/**
 * Many daemons in one process, for load: each runs the daemon's own admission, trust, executor, link and renewal, over memory in
 * place of files, and handlers that answer at once in place of a machine. Nothing of the protocol is simulated.
 */

import { type Agent, startAgent } from '../../daemon/agent/agent.ts';
import { decodeSpec } from '../../daemon/agent/desired-state.ts';
import { withoutPayload } from '../../daemon/agent/executor.ts';
import type { AgentLog } from '../../daemon/agent/log.ts';
import type { KindHandler, KindHandlers } from '../../daemon/kinds/handler.ts';
import { succeeded } from '../../daemon/kinds/handler.ts';
import { memoryQuorumStores, type QuorumStores } from '../../daemon/quorum/quorum-state.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import type { StoredIdentity } from '../../daemon/state/identity.ts';
import { createIdentityStore } from '../../daemon/state/identity-store.ts';
import { Journal, type JournalStorage } from '../../daemon/state/journal.ts';
import { type Marks, type MarksStore, raisedMarks } from '../../daemon/state/marks.ts';
import type { KeptSpec, SpecStore } from '../../daemon/state/spec-store.ts';
import type { StatusContent, StatusSink } from '../../daemon/state/status-file.ts';
import type { BackoffLimits } from '../../daemon/transport/backoff.ts';
import { grpcRoute } from '../../daemon/transport/grpc-route.ts';
import { type SessionTiming, sessionTiming } from '../../daemon/transport/session-stream.ts';
import type { GatewayRoute } from '../../daemon/transport/wire.ts';
import { type ClockSource, createServerClock } from '../../daemon/trust/server-clock.ts';
import type { TunnelConfig } from '../../daemon/tunnel/config.ts';
import { TunnelHost } from '../../daemon/tunnel/host.ts';
import type { KindOfRole } from '../../domain/commands/kinds.ts';
import { day } from '../../domain/time.ts';
import type { TunnelLimits } from '../../domain/tunnels/limits.ts';
import type { QuorumFields } from '../../pki/trust/index.ts';
import {
  DaemonUpgradeResultSchema,
  driver,
  InventoryReportSchema,
  LogsCollectResultSchema,
  NodeRebootResultSchema,
  ServiceRestartResultSchema,
} from '../../proto/index.ts';

export interface MemberOptions {
  readonly identity: StoredIdentity;
  /** How often each kind ran is counted here; override a kind to do more. */
  readonly handlers?: KindHandlers;
  readonly minOverlapMs?: number;
  readonly timing?: SessionTiming;
  /** Without: gRPC. */
  readonly route?: GatewayRoute;
  readonly limits?: BackoffLimits;
  readonly log?: AgentLog;
  readonly random?: () => number;
  readonly source?: ClockSource;
  /** Where the journal's records go; memory that is at once durable by itself. */
  readonly journalStorage?: JournalStorage;
  readonly dialWithinMs?: number;
  /** What it used up of a quorum; memory by itself. */
  readonly quorumStores?: QuorumStores;
  /** What only goes up, over restarts; memory by itself. */
  readonly marks?: MarksStore;
  /** The approver set it holds from the start; its identity's without (DMN-002). */
  readonly quorum?: QuorumFields;
  /** The only first approver set it takes; its identity's without. */
  readonly approverSetPin?: string;
  /** What tunnels may lead to; without it, none is opened. */
  readonly tunnels?: { readonly config: TunnelConfig; readonly limits?: TunnelLimits };
  readonly renewal?: { readonly lookEveryMs?: number; readonly callWithinMs?: number };
}

export interface Member {
  readonly agent: Agent;
  readonly nodeId: string;
  /** What `bcd status` would show. */
  readonly status: () => Partial<StatusContent>;
  /** Command id → how often its effect happened. */
  readonly effects: ReadonlyMap<string, number>;
  identity(): StoredIdentity;
  stop(): Promise<void>;
}

const silent: AgentLog = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

const memoryStorage: JournalStorage = {
  append: async () => undefined,
  replaceAll: async () => undefined,
  isLong: () => false,
  close: async () => undefined,
};

export function memoryMarks(): MarksStore {
  let current: Marks = { epoch: 0n, timeFloorMs: 0 };
  return {
    get current() {
      return current;
    },
    raise: async (by) => void (current = raisedMarks(current, by)),
  };
}

function memorySpec(): SpecStore {
  let current: KeptSpec | undefined;
  return {
    get current() {
      return current;
    },
    save: async (next) => void (current = next),
  };
}

/** Answers at once with the kind's own result type. */
function instantHandlers(count: (id: string) => void): Record<KindOfRole<'node'>, KindHandler> {
  const counted = (end: ReturnType<typeof succeeded>): KindHandler => ({
    run: async (_payload, { commandId }) => {
      count(commandId);
      return end;
    },
  });
  return {
    'inventory.refresh': counted(succeeded(InventoryReportSchema, { hardware: { hostname: 'simulated' } })),
    'node.reboot': counted(succeeded(NodeRebootResultSchema, { bootIdBefore: 'boot-1', bootIdAfter: 'boot-2' })),
    'service.restart': counted(succeeded(ServiceRestartResultSchema, { activeState: 'active' })),
    'logs.collect': counted(succeeded(LogsCollectResultSchema, { bytes: 0n })),
    'daemon.upgrade': counted(succeeded(DaemonUpgradeResultSchema, { versionBefore: '0.1.0', versionAfter: '0.1.0' })),
    'driver.invoke': counted(succeeded(driver.DriverInvokeResultSchema, { output: Buffer.from('simulated') })),
  };
}

const holding = ({ identity, key }: StoredIdentity, quorum: QuorumFields | undefined): StoredIdentity =>
  quorum === undefined
    ? { identity, key }
    : { key, identity: { ...identity, quorum: { kind: 'held', fields: quorum, epoch: Number(quorum.approverSetEpoch) } } };

export function startMember(options: MemberOptions): Member {
  const { identity: stored, log = silent, random = Math.random, marks = memoryMarks() } = options;
  const source = options.source ?? { wallMs: Date.now, steadyMs: () => performance.now() };
  const effects = new Map<string, number>();
  let status: Partial<StatusContent> = {};
  const sink: StatusSink = { update: (change) => void (status = { ...status, ...change }), flush: async () => undefined };
  const identity = createIdentityStore(holding(stored, options.quorum), async () => undefined);
  const spec = memorySpec();
  const clock = createServerClock(source, marks.current.timeFloorMs);
  const access = () => (spec.current === undefined ? undefined : decodeSpec(spec.current.spec).access);
  const around = { nodeId: () => stored.identity.nodeId, access, clock, log };
  const agent = startAgent({
    identity,
    log,
    random,
    marks,
    spec,
    ...(options.tunnels === undefined ? {} : { tunnels: new TunnelHost({ ...around, ...options.tunnels }) }),
    status: sink,
    crash: neverCrash,
    attest: async () => new Uint8Array(),
    route: options.route ?? grpcRoute,
    wallMs: source.wallMs,
    journal: new Journal({ storage: options.journalStorage ?? memoryStorage, records: [], withoutPayload }),
    quorum: options.quorumStores ?? memoryQuorumStores(),
    approverSetPin: options.approverSetPin ?? null,
    clock,
    handlers: { ...instantHandlers((id) => effects.set(id, (effects.get(id) ?? 0) + 1)), ...options.handlers },
    minOverlapMs: options.minOverlapMs ?? day,
    readBootId: async () => 'boot-1',
    link: {
      timing: options.timing ?? sessionTiming,
      ...(options.limits === undefined ? {} : { limits: options.limits }),
      ...(options.dialWithinMs === undefined ? {} : { dialWithinMs: options.dialWithinMs }),
    },
    ...(options.renewal === undefined ? {} : { renewal: options.renewal }),
  });
  return {
    agent,
    nodeId: stored.identity.nodeId,
    effects,
    status: () => status,
    identity: () => identity.current,
    stop: () => agent.stop(1000),
  };
}

export interface Fleet {
  readonly members: readonly Member[];
  /** Members with a welcomed session now. */
  connected(): number;
  /** Resolves when this many are connected. */
  whenConnected(count?: number): Promise<void>;
  /** Trust version → members that hold it. */
  trustVersions(): Map<number, number>;
  effects(): number;
  stop(): Promise<void>;
}

export interface FleetOptions extends Omit<MemberOptions, 'identity'> {
  readonly identities: readonly StoredIdentity[];
  /** First dials under way together; one process cannot answer for thousands of handshakes of its own at once. */
  readonly startsAtOnce?: number;
}

const fleetDialWithinMs = 120_000;

export function startFleet({ identities, startsAtOnce = 64, ...options }: FleetOptions): Fleet {
  const members: Member[] = [];
  const waiting = new Set<() => void>();
  const log = options.log ?? silent;
  let stopped = false;
  const startNext = (): void => {
    const identity = identities[members.length];
    if (identity === undefined || stopped) return;
    let isStarted = false;
    const onConnected = (): void => {
      if (!isStarted) startNext();
      isStarted = true;
      for (const look of waiting) look();
    };
    members.push(startMember({ dialWithinMs: fleetDialWithinMs, ...options, identity, log: watched(log, onConnected) }));
  };
  for (let n = 0; n < startsAtOnce; n++) startNext();
  const connected = (): number => members.filter((member) => member.agent.link.current !== undefined).length;
  return {
    members,
    connected,
    whenConnected: (count = identities.length) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (connected() < count) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      }),
    trustVersions() {
      const versions = new Map<number, number>();
      for (const { agent } of members) versions.set(agent.state.held().version, (versions.get(agent.state.held().version) ?? 0) + 1);
      return versions;
    },
    effects: () => members.reduce((sum, member) => sum + [...member.effects.values()].reduce((a, b) => a + b, 0), 0),
    async stop() {
      stopped = true;
      await Promise.all(members.map((member) => member.stop()));
    },
  };
}

/** Tells of each welcome, once the link knows of it too. */
const watched = (log: AgentLog, onConnected: () => void): AgentLog => ({
  debug: (facts, message) => log.debug(facts, message),
  info(facts, message) {
    log.info(facts, message);
    if (message === 'connected') queueMicrotask(onConnected);
  },
  warn: (facts, message) => log.warn(facts, message),
  error: (facts, message) => log.error(facts, message),
});
