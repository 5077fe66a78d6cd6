/**
 * What `bcd run` does about an armed enrolment before it takes up its identity: it asks for the next one with the key that was made ready, and goes on
 * as what it is then. The join itself is what ends the identity before (XC-038), so there is nothing to take back: asked in vain, by whomever and
 * for whatever reason, this machine is what it was.
 *
 * Refusals are not signed. One makes this start go on with the identity in force; the enrolment stays, for the next start, until its deadline. Behind
 * it the key is kept for one case: the identity in force is over, and it may be this enrolment's answer that got lost on the way here. Then, and on
 * a machine that has no identity to lose, it is asked once more.
 */
import { encodeEnrolmentEvidence } from '../../domain/enrolment/evidence.ts';
import { completesWithinMs } from '../../domain/enrolment/states.ts';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { spkiOf } from '../../pki/x509/index.ts';
import type { AgentLog } from '../agent/log.ts';
import { initialStatus } from '../initial-status.ts';
import { joinNode } from '../join.ts';
import { pause } from '../pause.ts';
import { reasonOf } from '../reason.ts';
import { kernelBootId } from '../state/boot-id.ts';
import type { CrashHook } from '../state/crash-points.ts';
import { findIdentity, type Identity, type StoredIdentity } from '../state/identity.ts';
import { lockFolder } from '../state/lock.ts';
import { openMarks } from '../state/marks.ts';
import { openStatusFile } from '../state/status-file.ts';
import { findEnrolment, type PendingEnrolment, removeEnrolment } from './file.ts';

export interface SettleOptions {
  readonly dataDir: string;
  readonly log: AgentLog;
  readonly crash: CrashHook;
  readonly random?: () => number;
  readonly stopped: AbortSignal;
  /** The identity in force is over: ask once, also behind the deadline. */
  readonly lastResort: boolean;
}

/** Whether this machine has a new identity now. Never throws: whatever fails, it goes on as what it is. */
export async function settleEnrolment(options: SettleOptions): Promise<boolean> {
  const { dataDir, log } = options;
  try {
    const pending = await findEnrolment(dataDir);
    if (pending?.state !== 'armed') return false;
    // One that is damaged is told by whatever opens it next.
    const live = await findIdentity(dataDir).catch(() => undefined);
    return await settleArmed(pending, live, options);
  } catch (err) {
    log.error({ err }, 'the enrolment in this folder cannot be completed');
    return false;
  }
}

type Plan =
  /** It was stopped between the identity and the removal of what led to it. */
  | { readonly kind: 'done'; readonly identity: Identity }
  /** There is an identity, and nobody who says that it is over. */
  | { readonly kind: 'late' }
  | { readonly kind: 'ask'; readonly patienceMs: number };

interface Standing {
  readonly live: StoredIdentity | undefined;
  readonly lastResort: boolean;
  readonly now: number;
}

function planOf(pending: PendingEnrolment, { live, lastResort, now }: Standing): Plan {
  if (live !== undefined && hasItsKey(live, pending)) return { kind: 'done', identity: live.identity };
  if (lastResort) return { kind: 'ask', patienceMs: 0 };
  const leftMs = Math.min((pending.deadlineMs ?? 0) - now, completesWithinMs);
  if (leftMs > 0) return { kind: 'ask', patienceMs: leftMs };
  return live === undefined ? { kind: 'ask', patienceMs: 0 } : { kind: 'late' };
}

const hasItsKey = ({ key }: StoredIdentity, pending: PendingEnrolment): boolean =>
  Buffer.from(spkiOf(key)).equals(Buffer.from(spkiOf(pending.key)));

async function settleArmed(pending: PendingEnrolment, live: StoredIdentity | undefined, options: SettleOptions): Promise<boolean> {
  const plan = planOf(pending, { live, lastResort: options.lastResort, now: Date.now() });
  switch (plan.kind) {
    case 'done':
      return forget(pending, plan.identity, options);
    case 'late':
      options.log.warn({ enrolment: pending.id }, `${nameOf(pending)} was not completed in time; ${goingOn(live)}`);
      return false;
    case 'ask':
      return complete(pending, { live, patienceMs: plan.patienceMs }, options);
  }
}

interface Asking {
  readonly live: StoredIdentity | undefined;
  readonly patienceMs: number;
}

async function complete(pending: PendingEnrolment, { live, patienceMs }: Asking, options: SettleOptions): Promise<boolean> {
  const { log } = options;
  const { id } = pending;
  try {
    if (live !== undefined) await sayBegun(pending, live.identity, options);
    return await forget(pending, await ask(pending, patienceMs, options), options);
  } catch (error) {
    const facts = { enrolment: id, code: codeOf(error), ...(error instanceof ControlError ? { reason: reasonOf(error) } : { err: error }) };
    log.warn(facts, `${nameOf(pending)} is not completed: ${error instanceof Error ? error.message : String(error)}; ${goingOn(live)}`);
    return false;
  }
}

const nameOf = ({ id, deadlineMs }: PendingEnrolment): string => `enrolment ${id}, armed until ${showInstant(deadlineMs ?? 0)}`;
const nodeOf = ({ nodeId, generation }: Identity): string => `node ${nodeId}, generation ${generation}`;
const goingOn = (live: StoredIdentity | undefined): string =>
  live === undefined ? 'this machine has no identity' : `going on as ${nodeOf(live.identity)}`;

function ask(pending: PendingEnrolment, patienceMs: number, { dataDir, log, crash, random, stopped }: SettleOptions): Promise<Identity> {
  const { id, role, pins, key, csr } = pending;
  return joinNode({
    dataDir,
    bundle: { ...pins, token: '' },
    role,
    attestor: 'enrolment',
    evidence: async () => {
      await assertStillArmed(dataDir, id);
      return encodeEnrolmentEvidence({ asks: 'identity', id });
    },
    request: { key, csr },
    replace: true,
    keepsApprovers: true,
    patienceMs,
    host: { root: '/', readBootId: () => kernelBootId.read() },
    random: random ?? Math.random,
    now: Date.now,
    say: (text) => log.info({ enrolment: id }, text),
    sleep: (ms) => pause(ms, stopped),
    signal: stopped,
    crash,
  });
}

/** Whoever calls it off over SSH need not wait for the end of its patience. */
async function assertStillArmed(dataDir: string, id: string): Promise<void> {
  const now = await findEnrolment(dataDir);
  if (now?.id === id && now.state === 'armed') return;
  throw new ControlError('CANCELLED', 'it was abandoned on this machine', { details: { reason: 'enrolment-abandoned' } });
}

/** Its key is the identity's now. */
async function forget(pending: PendingEnrolment, identity: Identity, { dataDir, log, crash }: SettleOptions): Promise<true> {
  log.info({ enrolment: pending.id, nodeId: identity.nodeId }, `enrolment ${pending.id} is complete: this machine is ${nodeOf(identity)}`);
  await removeEnrolment(dataDir, pending.id).catch((err: unknown) =>
    log.warn({ err, enrolment: pending.id }, 'the file of the enrolment stays until the next start'),
  );
  crash('enrolment-removed');
  return true;
}

/** In the log, and for `bcd status`; whoever takes up the identity writes the next. @throws CONFLICT when another bcd holds the folder */
async function sayBegun(pending: PendingEnrolment, live: Identity, { dataDir, log }: SettleOptions): Promise<void> {
  const lock = await lockFolder(dataDir);
  try {
    log.info({ enrolment: pending.id }, `completing ${nameOf(pending)}; until then this machine is ${nodeOf(live)}`);
    const { epoch } = (await openMarks(dataDir).catch(() => ({ current: { epoch: 0n } }))).current;
    const begun = initialStatus(live, { epoch, pin: live.approverSetPin });
    const onError = (err: unknown): void => log.error({ err }, 'the status file cannot be written');
    const said = { ...begun, state: 'enrolling' as const, stateDetail: `completing ${nameOf(pending)}` };
    await openStatusFile(dataDir, said, { now: Date.now, onError }).flush();
  } finally {
    await lock.release();
  }
}
