/**
 * The life of `bcd run` in one data folder: lock, load, agent, and again after a simulated reboot or when a person put a new
 * identity in place.
 *
 * A parked daemon (certificate expired, revoked, identity superseded) gives the folder free, so that `bcd join --replace` can do its
 * work, says what to do, and takes up again by itself when the identity has changed; else it asks the gateway anew from
 * time to time. Before that it tries once to complete an enrolment whose answer may have been lost.
 */
import { stat } from 'node:fs/promises';
import { type ControlError, codeOf } from '../domain/errors.ts';
import { minute, second, showInstant } from '../domain/time.ts';
import { parseCertificate } from '../pki/x509/index.ts';
import { settleEnrolment } from './enrol/settle.ts';
import type { BoundAllocation } from './events/client.ts';
import { pause } from './pause.ts';
import { type DaemonOptions, openRound, type Round } from './round.ts';
import { type Identity, identityPath } from './state/identity.ts';
import type { IssuedToken, TokenOrder } from './workload/token-client.ts';

export type { DaemonOptions } from './round.ts';

export interface RunningDaemon {
  /** Whether a session is welcomed now. */
  isConnected(): boolean;
  /** Over the session that there is or that comes next. @throws as QuestionClient.ask */
  readonly askWorkloadToken: (order: TokenOrder, signal: AbortSignal) => Promise<IssuedToken>;
  /** The same. Resolves when the control plane has taken it. */
  readonly reportBinding: (bound: BoundAllocation, signal: AbortSignal) => Promise<void>;
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
      if (end.kind === 'parked') await comeBack(options, { round, error: end.error, stopped: stopped.signal });
      if (!stopped.signal.aborted) round = await openRound(options);
    }
  };
  const done = loop()
    .catch(options.onFailed)
    // A round that was opened while the daemon was being stopped.
    .then(() => round.close(stopGraceMs));
  return {
    isConnected: () => round.agent.link.current !== undefined,
    askWorkloadToken: (order, signal) => round.workloadTokens.ask(order, signal),
    reportBinding: (bound, signal) => round.events.ask(bound, signal),
    async stop() {
      stopped.abort();
      await round.close(stopGraceMs);
      await done;
    },
  };
}

/** What a person must do, in words that can be copied. */
export function parkedAdvice(error: ControlError, { identity, dataDir }: { identity: Identity; dataDir: string }): string {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  const why =
    codeOf(error) === 'CERTIFICATE_EXPIRED'
      ? `the node's certificate ${leaf.serial} expired at ${showInstant(leaf.notAfter)}`
      : error.message;
  return (
    `${why}. Join again: better-compute tokens create --site ${identity.siteId} --role ${identity.role} --node ${identity.nodeId}` +
    ` on the control plane, then here: bcd join --replace --data-dir ${dataDir} <join string>; this daemon goes on by itself after that`
  );
}

interface Parked {
  readonly round: Round;
  readonly error: ControlError;
  readonly stopped: AbortSignal;
}

/** An enrolment that this machine was not told the end of may be why its identity is over; else a person must help. */
async function comeBack(options: DaemonOptions, parked: Parked): Promise<void> {
  const { dataDir, log, crash, random = Math.random } = options;
  const settled = await settleEnrolment({ dataDir, log, crash, random, stopped: parked.stopped, lastResort: true });
  if (!settled && !parked.stopped.aborted) await park(options, parked);
}

/** The folder is free; waits for a new identity, or for the time to ask again. */
async function park({ dataDir, log, random = Math.random }: DaemonOptions, { round, error, stopped }: Parked): Promise<void> {
  const detail = parkedAdvice(error, { identity: round.agent.state.identity, dataDir });
  log.error({ code: error.code, reason: error.details['reason'] }, detail);
  const untilMs = Date.now() + parkedDialMs * (1 + random());
  round.status.update({
    state: 'parked',
    stateDetail: detail,
    nextDialAtMs: untilMs,
    lastFailure: { atMs: Date.now(), reason: error.code, detail: error.message },
  });
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
