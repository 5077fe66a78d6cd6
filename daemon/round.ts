import { uptime } from 'node:os';
import { join } from 'node:path';
import { withAccess } from './access/spec-with-access.ts';
import { sshAccessFiles } from './access/ssh-access.ts';
import { type Agent, startAgent } from './agent/agent.ts';
import { decodeSpec } from './agent/desired-state.ts';
import { withoutPayload } from './agent/executor.ts';
import type { AgentLog } from './agent/log.ts';
import { questionPortsOf } from './broker/question-client.ts';
import type { DaemonConfig } from './config.ts';
import { SpecCredentials, withCredentials } from './credentials/spec-credentials.ts';
import { EventClient } from './events/client.ts';
import { initialStatus } from './initial-status.ts';
import type { UpgradePorts } from './kinds/daemon-upgrade.ts';
import type { PluginPorts } from './kinds/driver-invoke.ts';
import type { KindHandlers } from './kinds/handler.ts';
import { createKindHandlers } from './kinds/index.ts';
import { systemdReboot } from './kinds/reboot.ts';
import { openLeavesFile } from './quorum/leaves-file.ts';
import { type QuorumStores, restoreClaims } from './quorum/quorum-state.ts';
import { openUnbatchedFile } from './quorum/unbatched-file.ts';
import { SecretClient } from './secrets/client.ts';
import type { SecretPort } from './secrets/port.ts';
import { kernelBootId, simulatedBootId } from './state/boot-id.ts';
import type { CrashHook } from './state/crash-points.ts';
import { openPrivateFolder } from './state/files.ts';
import { getIdentity } from './state/identity.ts';
import { type IdentityStore, identityFileStore } from './state/identity-store.ts';
import { Journal } from './state/journal.ts';
import { openJournalFiles } from './state/journal-files.ts';
import { lockFolder } from './state/lock.ts';
import { openMarks } from './state/marks.ts';
import { openSpecStore, type SpecStore } from './state/spec-store.ts';
import { openStatusFile, type StatusContent, type StatusSink } from './state/status-file.ts';
import { attestByTpm } from './tpm/attest.ts';
import { grpcRoute } from './transport/grpc-route.ts';
import type { SessionTiming } from './transport/session-stream.ts';
import type { GatewayRoute } from './transport/wire.ts';
import { createServerClock, type ServerClock } from './trust/server-clock.ts';
import { TunnelHost } from './tunnel/host.ts';
import { WorkloadTokenClient } from './workload/token-client.ts';

export interface DaemonOptions {
  readonly dataDir: string;
  readonly config: DaemonConfig;
  readonly simulateReboot: boolean;
  readonly minOverlapMs: number;
  readonly log: AgentLog;
  readonly crash: CrashHook;
  readonly random?: () => number;
  readonly timing?: SessionTiming;
  /** How the gateway is reached; without: gRPC. */
  readonly route?: GatewayRoute;
  /** Called when the daemon cannot go on by itself. */
  readonly onFailed: (error: unknown) => void;
  /** How this program is replaced; without: by hand alone. */
  readonly upgrade?: UpgradePorts | null;
  /** What a site agent or a ramdisk does in the place of a machine's own kinds; null: an identity of neither. */
  readonly roleHandlers?: (around: RoundState) => RoleHandlers | null;
}

/** What a role's handlers may build on. */
export interface RoundState {
  readonly identity: IdentityStore;
  readonly journal: Journal;
  readonly secrets: SecretPort;
  /** Server time. */
  readonly clock: { now(): number };
  readonly status: StatusSink;
  readonly readBootId: () => Promise<string>;
  readonly upgrade: UpgradePorts | null;
}

export interface RoleHandlers {
  readonly handlers: KindHandlers;
  /** The control plane has the result of this command. */
  readonly onReceipted?: (id: string) => void;
}

export type RoundEnd = Awaited<Agent['ended']> | { readonly kind: 'restart' };

/** One lock, one load, one agent. */
export interface Round {
  readonly agent: Agent;
  readonly status: StatusSink;
  readonly workloadTokens: WorkloadTokenClient;
  readonly events: EventClient;
  readonly ended: Promise<RoundEnd>;
  close(graceMs: number): Promise<void>;
}

/** @throws CONFLICT when another bcd holds the folder; and what its files throw when they do not read back */
export async function openRound(options: DaemonOptions): Promise<Round> {
  await openPrivateFolder(options.dataDir);
  const lock = await lockFolder(options.dataDir);
  try {
    const kept = await loadState(options);
    let restart: () => void = () => undefined;
    const restarted = new Promise<RoundEnd>((resolve) => {
      restart = () => resolve({ kind: 'restart' });
    });
    const agent = startAgent({
      ...kept,
      ...machine(options, { ...kept, restart }),
      log: options.log,
      crash: options.crash,
      random: options.random ?? Math.random,
      attest: attestByTpm(options.dataDir),
      route: options.route ?? grpcRoute,
      minOverlapMs: options.minOverlapMs,
      approverSetPin: options.config.approverSetSha256 ?? null,
      wallMs: Date.now,
      ...(options.timing === undefined ? {} : { link: { timing: options.timing } }),
    });
    kept.credentials?.start(() => agent.link.current?.sendStatus());
    const close = async (graceMs: number): Promise<void> => {
      await kept.credentials?.close();
      await agent.stop(graceMs);
      kept.status.update(stoppedStatus);
      await kept.status.flush();
      await kept.journal.close();
      kept.closeAccess();
      await lock.release();
    };
    const ended = Promise.race([agent.ended, restarted]);
    const { status, workloadTokens, events } = kept;
    return { agent, status, workloadTokens, events, ended, close: closeOnce(close) };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** Everything the agent knows, read from the folder. */
async function loadState({ dataDir, config, log, crash }: DaemonOptions) {
  const stored = await getIdentity(dataDir);
  const pin = config.approverSetSha256 ?? stored.identity.approverSetPin;
  const marks = await openMarks(dataDir);
  const files = await openJournalFiles(join(dataDir, 'journal'), { crash });
  if (files.tornBytes > 0) log.warn({ bytes: files.tornBytes }, 'the last write to the journal was interrupted; its bytes were set aside');
  const journal = new Journal({ ...files, crash, withoutPayload });
  const floorMs = Math.max(marks.current.timeFloorMs, stored.identity.joinedAtMs);
  const clock = createServerClock({ wallMs: Date.now, steadyMs: () => uptime() * 1000 }, floorMs);
  const status = openStatusFile(dataDir, initialStatus(stored.identity, { epoch: marks.current.epoch, pin }), {
    now: Date.now,
    onError: (err) => log.error({ err }, 'the status file cannot be written'),
  });
  const quorum = await openQuorumStores({ dataDir, log, crash }, { journal, floorMs });
  const identity = identityFileStore(dataDir, stored);
  const ports = questionPortsOf({ identity, clock });
  const brokers = {
    secrets: new SecretClient(ports),
    workloadTokens: new WorkloadTokenClient(ports),
    events: new EventClient(ports, () => identity.current.identity),
  };
  const carried = await openSpec(dataDir, { config, log, nodeId: stored.identity.nodeId, secrets: brokers.secrets });
  const tunnels = tunnelsOf(config, { identity, spec: carried.spec, clock, log });
  return { identity, marks, journal, quorum, clock, status, tunnels, ...brokers, ...carried };
}

/** A site agent and a ramdisk take none: nobody logs in to what they are. */
function tunnelsOf(
  { tunnels: config }: DaemonConfig,
  { identity, spec, clock, log }: { identity: IdentityStore; spec: SpecStore; clock: ServerClock; log: AgentLog },
): TunnelHost | undefined {
  if (config === undefined || config.operations.length === 0 || identity.current.identity.role !== 'node') return undefined;
  return new TunnelHost({
    config,
    nodeId: () => identity.current.identity.nodeId,
    access: () => (spec.current === undefined ? undefined : decodeSpec(spec.current.spec).access),
    clock,
    log,
  });
}

interface CarriedSpec {
  readonly spec: SpecStore;
  readonly credentials: SpecCredentials | undefined;
  closeAccess(): void;
}

/** The kept desired state, with what the owner of the machine lets it do. */
async function openSpec(
  dataDir: string,
  { config: { sshFolder, credentialsFolder, tunnels }, log, nodeId, secrets }: SpecPorts,
): Promise<CarriedSpec> {
  const kept = await openSpecStore(dataDir);
  const takesTickets = tunnels !== undefined;
  const access =
    sshFolder === undefined ? null : await withAccess(kept, { files: sshAccessFiles({ folder: sshFolder, nodeId }), log, takesTickets });
  const closeAccess = (): void => access?.close();
  const spec = access ?? kept;
  if (credentialsFolder === undefined) return { spec, credentials: undefined, closeAccess };
  const credentials = new SpecCredentials({ folder: credentialsFolder, secrets, log });
  return { spec: withCredentials(spec, credentials), credentials, closeAccess };
}

interface SpecPorts {
  readonly config: DaemonConfig;
  readonly log: AgentLog;
  readonly nodeId: string;
  readonly secrets: SecretPort;
}

/** DMN-016, DMN-020: what was used, with what a crash kept out of the files put back. */
async function openQuorumStores(
  { dataDir, log, crash }: Pick<DaemonOptions, 'dataDir' | 'log' | 'crash'>,
  { journal, floorMs }: { journal: Journal; floorMs: number },
): Promise<QuorumStores> {
  const stores = { leaves: await openLeavesFile(dataDir, { crash }), slots: await openUnbatchedFile(dataDir, { crash }) };
  for (const { unreadable } of [stores.leaves, stores.slots])
    if (unreadable !== null)
      log.error({ reason: unreadable }, 'destructive commands under a quorum are refused until this file is put right');
  const restored = await restoreClaims(stores, { accepted: journal.claims(), floorMs });
  if (restored > 0) log.warn({ restored }, 'the daemon was stopped while it noted what a command used up; it is noted now');
  return stores;
}

const stoppedStatus: Partial<StatusContent> = {
  state: 'stopped',
  stateDetail: 'bcd is not running',
  gatewayId: null,
  connectedSinceMs: null,
  nextDialAtMs: null,
  runningCommands: 0,
};

function closeOnce(close: (graceMs: number) => Promise<void>): (graceMs: number) => Promise<void> {
  let closing: Promise<void> | undefined;
  return (graceMs) => (closing ??= close(graceMs));
}

/** What the handlers may do to this machine. */
function machine(
  { dataDir, config, simulateReboot, log, roleHandlers, upgrade = null }: DaemonOptions,
  { spec, restart, ...kept }: Omit<RoundState, 'readBootId' | 'upgrade'> & { spec: SpecStore; restart: () => void },
): RoleHandlers & { readBootId: () => Promise<string> } {
  const simulated = simulatedBootId(dataDir);
  const readBootId = simulateReboot ? () => simulated.read() : () => kernelBootId.read();
  const ofRole = roleHandlers?.({ ...kept, readBootId, upgrade }) ?? null;
  if (ofRole !== null) return { ...ofRole, readBootId };
  const reboot = async (signal: AbortSignal): Promise<void> => {
    if (!simulateReboot) return systemdReboot(signal);
    await simulated.replace();
    log.info({}, 'simulated reboot: the agent starts anew');
    restart();
  };
  const handlers = createKindHandlers({
    host: { root: '/', readBootId },
    reboot: { readBootId, reboot },
    restart: { restartableUnits: () => allowedUnits(config, spec) },
    logs: { files: config.logFiles },
    upgrade,
    plugins: pluginsOf(config, log),
  });
  return { handlers, readBootId };
}

/** null: the machine's owner lets none be called. */
export const pluginsOf = ({ pluginsFolder }: DaemonConfig, log: AgentLog): PluginPorts | null =>
  pluginsFolder === undefined ? null : { folder: pluginsFolder, log };

/** The signed spec may narrow what the owner of the machine allows. */
function allowedUnits(config: DaemonConfig, spec: SpecStore): readonly string[] {
  const daemon = spec.current === undefined ? undefined : decodeSpec(spec.current.spec).daemon;
  if (daemon === undefined || daemon.restartableUnits.length === 0) return config.restartableUnits;
  return config.restartableUnits.filter((unit) => daemon.restartableUnits.includes(unit));
}
