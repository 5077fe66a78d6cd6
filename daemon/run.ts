/**
 * The life of `bcd run` in one data folder: lock, load, agent, and again after a simulated reboot or when a person put a new
 * identity in place.
 *
 * A parked daemon (certificate expired, revoked, identity superseded) gives the folder free, so that `bcd join --replace` can do its
 * work, says what to do, and takes up again by itself when the identity has changed; else it asks the gateway anew from
 * time to time.
 */
import { stat } from 'node:fs/promises';
import { uptime } from 'node:os';
import { join } from 'node:path';
import { type ControlError, codeOf } from '../domain/errors.ts';
import { minute, second, showInstant } from '../domain/time.ts';
import { certificateId, parseCertificate } from '../pki/x509/index.ts';
import { withoutPayload } from './agent/executor.ts';
import { type Agent, startAgent } from './agent/agent.ts';
import { decodeSpec } from './agent/desired-state.ts';
import type { AgentLog } from './agent/log.ts';
import { renewsAt } from './agent/renewal.ts';
import type { DaemonConfig } from './config.ts';
import { createKindHandlers } from './kinds/index.ts';
import { systemdReboot } from './kinds/reboot.ts';
import { kernelBootId, simulatedBootId } from './state/boot-id.ts';
import type { CrashHook } from './state/crash-points.ts';
import { openPrivateFolder } from './state/files.ts';
import { getIdentity, type Identity, identityPath } from './state/identity.ts';
import { identityFileStore } from './state/identity-store.ts';
import { Journal } from './state/journal.ts';
import { openJournalFiles } from './state/journal-files.ts';
import { lockFolder } from './state/lock.ts';
import { openMarks } from './state/marks.ts';
import { openSpecStore, type SpecStore } from './state/spec-store.ts';
import { openStatusFile, type StatusContent, type StatusSink } from './state/status-file.ts';
import { createServerClock } from './trust/server-clock.ts';
import type { SessionTiming } from './transport/session-stream.ts';
import { daemonVersion } from './version.ts';

export interface DaemonOptions {
  readonly dataDir: string;
  readonly config: DaemonConfig;
  readonly simulateReboot: boolean;
  readonly minOverlapMs: number;
  readonly log: AgentLog;
  readonly crash: CrashHook;
  readonly random?: () => number;
  readonly timing?: SessionTiming;
  /** Called when the daemon cannot go on by itself. */
  readonly onFailed: (error: unknown) => void;
}

export interface RunningDaemon {
  /** Whether a session is welcomed now. */
  isConnected(): boolean;
  stop(): Promise<void>;
}

const stopGraceMs = 10 * second;
const parkGraceMs = minute;
const parkedDialMs = 10 * minute;
const lookForIdentityMs = 2 * second;

/** @throws when the folder cannot be used: CONFLICT, NOT_FOUND (not joined), DATA_CORRUPT, INVALID_STATE */
export async function startDaemon(options: DaemonOptions): Promise<RunningDaemon> {
  const stopped = new AbortController();
  let round = await openRound(options);
  const loop = async (): Promise<void> => {
    while (!stopped.signal.aborted) {
      const end = await round.ended;
      await round.close(end.kind === 'parked' ? parkGraceMs : end.kind === 'restart' ? 0 : stopGraceMs);
      if (stopped.signal.aborted || end.kind === 'stopped') return;
      if (end.kind === 'failed') return options.onFailed(end.error);
      if (end.kind === 'parked') await park(options, { round, error: end.error, stopped: stopped.signal });
      if (!stopped.signal.aborted) round = await openRound(options);
    }
  };
  const done = loop()
    .catch(options.onFailed)
    // A round that was opened while the daemon was being stopped.
    .then(() => round.close(stopGraceMs));
  return {
    isConnected: () => round.agent.link.current !== undefined,
    async stop() {
      stopped.abort();
      await round.close(stopGraceMs);
      await done;
    },
  };
}

type RoundEnd = Awaited<Agent['ended']> | { readonly kind: 'restart' };

/** One lock, one load, one agent. */
interface Round {
  readonly agent: Agent;
  readonly status: StatusSink;
  readonly ended: Promise<RoundEnd>;
  close(graceMs: number): Promise<void>;
}

async function openRound(options: DaemonOptions): Promise<Round> {
  const { dataDir, log, crash, random = Math.random } = options;
  await openPrivateFolder(dataDir);
  const lock = await lockFolder(dataDir);
  try {
    const stored = await getIdentity(dataDir);
    const marks = await openMarks(dataDir);
    const spec = await openSpecStore(dataDir);
    const files = await openJournalFiles(join(dataDir, 'journal'), { crash });
    if (files.tornBytes > 0) log.warn({ bytes: files.tornBytes }, 'the last write to the journal was interrupted; its bytes were set aside');
    const journal = new Journal({ ...files, crash, withoutPayload });
    const clock = createServerClock({ wallMs: Date.now, steadyMs: () => uptime() * 1000 }, Math.max(marks.current.timeFloorMs, stored.identity.joinedAtMs));
    const status = openStatusFile(dataDir, initialStatus(stored.identity, marks.current.epoch), { now: Date.now, onError: (err) => log.error({ err }, 'the status file cannot be written') });
    let restart: () => void = () => undefined;
    const restarted = new Promise<RoundEnd>((resolve) => {
      restart = () => resolve({ kind: 'restart' });
    });
    const { handlers, readBootId } = machine(options, { spec, restart });
    const identity = identityFileStore(dataDir, stored);
    const agent = startAgent({
      ...{ identity, marks, spec, journal, clock, handlers, status, log, crash, random, readBootId },
      minOverlapMs: options.minOverlapMs,
      wallMs: Date.now,
      ...(options.timing === undefined ? {} : { link: { timing: options.timing } }),
    });
    return { agent, status, ended: Promise.race([agent.ended, restarted]), close: closeOnce(async (graceMs) => {
      await agent.stop(graceMs);
      status.update({ state: 'stopped', stateDetail: 'bcd is not running', gatewayId: null, connectedSinceMs: null, nextDialAtMs: null, runningCommands: 0 });
      await status.flush();
      await journal.close();
      await lock.release();
    }) };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

function closeOnce(close: (graceMs: number) => Promise<void>): (graceMs: number) => Promise<void> {
  let closing: Promise<void> | undefined;
  return (graceMs) => (closing ??= close(graceMs));
}

/** What the handlers may do to this machine. */
function machine({ dataDir, config, simulateReboot, log }: DaemonOptions, { spec, restart }: { spec: SpecStore; restart: () => void }) {
  const simulated = simulatedBootId(dataDir);
  const readBootId = simulateReboot ? () => simulated.read() : () => kernelBootId.read();
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
  });
  return { handlers, readBootId };
}

/** The signed spec may narrow what the owner of the machine allows. */
function allowedUnits(config: DaemonConfig, spec: SpecStore): readonly string[] {
  const daemon = spec.current === undefined ? undefined : decodeSpec(spec.current.spec).daemon;
  if (daemon === undefined || daemon.restartableUnits.length === 0) return config.restartableUnits;
  return config.restartableUnits.filter((unit) => daemon.restartableUnits.includes(unit));
}

function initialStatus(identity: Identity, epoch: bigint): StatusContent {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  return {
    ...{ pid: process.pid, daemonVersion, nodeId: identity.nodeId, siteId: identity.siteId, role: identity.role, trustDomain: identity.trustDomain, gatewayUrl: identity.gatewayUrl },
    ...{ generation: identity.generation.toString(), epoch: epoch.toString(), trustVersion: identity.trust.version.toString(), commandRoots: identity.trust.commandRoots.map(certificateId) },
    ...{ state: 'connecting' as const, stateDetail: 'starting', gatewayId: null, connectedSinceMs: null, nextDialAtMs: null, runningCommands: 0, clockOffsetMs: null },
    ...{ certificateSerial: leaf.serial, certificateNotAfterMs: leaf.notAfter, renewsAtMs: renewsAt(leaf, identity.nodeId) },
    ...{ lastCommand: null, lastRefusal: null, lastFailure: null, updatedAtMs: 0 },
  };
}

/** What a person must do, in words that can be copied. */
export function parkedAdvice(error: ControlError, { identity, dataDir }: { identity: Identity; dataDir: string }): string {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  const why = codeOf(error) === 'CERTIFICATE_EXPIRED' ? `the node's certificate ${leaf.serial} expired at ${showInstant(leaf.notAfter)}` : error.message;
  return (
    `${why}. Join again: better-compute tokens create --site ${identity.siteId} --role ${identity.role} --node ${identity.nodeId}` +
    ` on the control plane, then here: bcd join --replace --data-dir ${dataDir} <join string>; this daemon goes on by itself after that`
  );
}

/** The folder is free; waits for a new identity, or for the time to ask again. */
async function park({ dataDir, log, random = Math.random }: DaemonOptions, { round, error, stopped }: { round: Round; error: ControlError; stopped: AbortSignal }): Promise<void> {
  const detail = parkedAdvice(error, { identity: round.agent.state.identity, dataDir });
  log.error({ code: error.code, reason: error.details['reason'] }, detail);
  const untilMs = Date.now() + parkedDialMs * (1 + random());
  round.status.update({ state: 'parked', stateDetail: detail, nextDialAtMs: untilMs, lastFailure: { atMs: Date.now(), reason: error.code, detail: error.message } });
  await round.status.flush();
  const before = await fingerprint(dataDir);
  while (!stopped.aborted && Date.now() < untilMs && (await fingerprint(dataDir)) === before) await pause(lookForIdentityMs, stopped);
}

async function fingerprint(dataDir: string): Promise<string> {
  try {
    const { ino, mtimeMs, size } = await stat(identityPath(dataDir));
    return `${ino} ${mtimeMs} ${size}`;
  } catch {
    return 'none';
  }
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      stopped.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    stopped.addEventListener('abort', done, { once: true });
  });
}
