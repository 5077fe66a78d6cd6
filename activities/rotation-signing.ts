/**
 * The rotation's activities that touch the key bundle. Each judges its gate from the database itself, acts through the
 * bundle's compare-and-swap with a step that is idempotent by the rotation's id, and writes its evidence. A repeated call finds
 * the step done, skips the gate, and only makes up for evidence that is missing.
 */
import { heartbeat } from '@temporalio/activity';
import { ControlError, isControlError } from '../domain/errors.ts';
import { dropOpensAt, judgeDrop } from '../domain/rotation/gates.ts';
import type { CommandRoots, RotationInProgress } from '../domain/rotation/stages.ts';
import { hour } from '../domain/time.ts';
import { parseStageEvidence } from '../pki/audit/evidence.ts';
import { translatedForHolder } from './failures.ts';
import { currentWait, notYet } from './not-yet.ts';
import { answer, assertOpen, type GateName, type GateReport, judgeNodes, judgeRollout, readOverrides } from './rotation-gates.ts';
import { type Planned, planFrom, rootsOf } from './rotation-plan.ts';
import type { OverrideRow, RootsView, RotationSigningPorts, SignedAgain } from './rotation-ports.ts';
import { readFleetInput, type StageInput, writeEvidence } from './rotation-stage.ts';

export interface Step {
  readonly rotationId: string;
}

export interface RotationSigningActivities {
  planCommandRoot(input: Step): Promise<Planned>;
  addCommandRoot(input: Step): Promise<{ oldRoot: string | null; newRoot: string | null }>;
  awaitProcesses(input: Step & { gate: GateName; patienceMs: number | null }): Promise<GateReport>;
  switchCommandRoot(input: Step): Promise<void>;
  signAgain(input: Step): Promise<SignedAgain & { dropOpensAt: number }>;
  dropCommandRoot(input: Step): Promise<SignedAgain>;
  abortCommandRotation(input: Step): Promise<{ kind: 'nothing' | 'removed' | 'switched-back' | 'too-late' }>;
  recordOutcome(input: Step): Promise<void>;
  /** Waits until this deployment's bundle and database are the newest again (H-07), and `atLeastMs` before it says so. */
  awaitFreshness(input: Step & { atLeastMs: number }): Promise<void>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

const nothingSigned: SignedAgain = Object.freeze({ commands: 0, specs: 0 });

export function createRotationSigningActivities(ports: RotationSigningPorts): RotationSigningActivities {
  return translatedForHolder<RotationSigningActivities>({
    async planCommandRoot({ rotationId }) {
      const view = await ports.roots.read();
      const planned = planFrom(view.roots, rotationId);
      await writeEvidence(ports, { rotationId: planned.rotationId, stage: 'plan', view });
      const { abort } = await readOverrides(ports, planned.rotationId);
      return abort === undefined ? planned : { ...planned, abort: { actor: abort.actor, reason: abort.reason } };
    },

    async addCommandRoot({ rotationId }) {
      const refuse = (): Promise<void> => refuseAborted(ports, rotationId);
      const view = await ports.roots.add({ rotationId, refuse });
      await undoLateAdd(ports, rotationId, view);
      await writeEvidence(ports, { rotationId, stage: 'add', view });
      return rootsOf(view.roots, rotationId);
    },

    async awaitProcesses({ rotationId, gate, patienceMs }) {
      const [view, overrides] = await Promise.all([ports.roots.read(), readOverrides(ports, rotationId)]);
      const judged = await judgeRollout(ports, { view, gate, overrides });
      if (gate === 'processes' && judged.verdict.kind === 'open') await writeEvidence(ports, { rotationId, stage: 'processes', view });
      return answer(judged, { wait: currentWait(), patienceMs, now: ports.now() });
    },

    async switchCommandRoot({ rotationId }) {
      const before = await ports.roots.read();
      const pending = before.roots.rotation?.id === rotationId && before.roots.rotation.stage === 'added';
      const gate = pending ? await assertMaySwitch(ports, { view: before, rotationId }) : {};
      const view = await ports.roots.switch({ rotationId });
      // Taken back in this moment: the step changed nothing, and there is nothing to testify.
      if (!isTakenBack(view.roots, rotationId)) await writeEvidence(ports, { rotationId, stage: 'switch', view, ...gate });
    },

    signAgain: ({ rotationId }) => signAgain(ports, rotationId),

    dropCommandRoot: ({ rotationId }) => drop(ports, rotationId),

    async abortCommandRotation({ rotationId }) {
      const { abort } = await readOverrides(ports, rotationId);
      if (abort === undefined) {
        throw new ControlError('INVALID_STATE', `no abort of rotation ${rotationId} is recorded`, { details: { reason: 'not-recorded' } });
      }
      return takeBack(ports, rotationId, abort);
    },

    async recordOutcome({ rotationId }) {
      const begun = (await ports.evidence.read(rotationId)).some((row) => parseStageEvidence(row.document).stage === 'add');
      // Taken back before its add: there is nothing to confirm.
      if (begun) await writeEvidence(ports, { rotationId, stage: 'confirm', view: await ports.roots.read() });
    },

    awaitFreshness: ({ atLeastMs }) => awaitFreshness(ports, atLeastMs),
  });
}

const isTakenBack = ({ rotation, lastRotation }: CommandRoots, rotationId: string): boolean =>
  rotation?.id === rotationId ? rotation.aborted : lastRotation?.id === rotationId && lastRotation.outcome === 'aborted';

async function signAgain(ports: RotationSigningPorts, rotationId: string): Promise<SignedAgain & { dropOpensAt: number }> {
  const view = await ports.roots.read();
  const { rotation } = view.roots;
  const { switchedAt } = rotation?.id === rotationId ? rotation : { switchedAt: null };
  // Dropped already: a repeated step has nothing to do and nothing to wait for.
  if (rotation === null || switchedAt === null) return { ...nothingSigned, dropOpensAt: await ports.facts.now() };
  const signed = await ports.resign.signAgain({ underRoot: rotation.oldRoot, onProgress: heartbeat });
  const lastWorkerNotAfter = await ports.facts.lastWorkerNotAfter(rotation.oldRoot);
  // After an abort the documents go on with the drop: each stage stands once, in its order.
  if (!rotation.aborted) await writeEvidence(ports, { rotationId, stage: 'resign', view });
  return { ...signed, dropOpensAt: dropOpensAt({ switchedAt, lastWorkerNotAfter }, ports.times) };
}

async function drop(ports: RotationSigningPorts, rotationId: string): Promise<SignedAgain> {
  const view = await ports.roots.read();
  const { rotation } = view.roots;
  const pending = rotation?.id === rotationId && rotation.switchedAt !== null;
  const opensAt = pending ? await assertMayDrop(ports, { view, rotation, switchedAt: rotation.switchedAt }) : neverOpen;
  const signed = pending ? await signLastOnes(ports, rotation.oldRoot) : nothingSigned;
  // By name: a cancelled attempt goes on here, and the abort that cancelled it lets the other root wait for its drop.
  const judged = pending ? { root: rotation.oldRoot } : {};
  const dropped = await ports.roots.drop({ rotationId, ...judged, opensAt, forcedReason: '' });
  await writeEvidence(ports, { rotationId, stage: 'drop', view: dropped });
  return signed;
}

/** For a step that must change nothing: the rules refuse it, or find it done. */
const neverOpen = Number.MAX_SAFE_INTEGER;

/** H-05: what was signed under the root since, by a process that switched late. */
async function signLastOnes(ports: RotationSigningPorts, root: string): Promise<SignedAgain> {
  const signed = await ports.resign.signAgain({ underRoot: root, onProgress: heartbeat });
  const left = await ports.resign.stillSignedUnder(root);
  if (left > 0) {
    const message = `${left} open command(s) or spec(s) are still signed under the former root`;
    notYet({ reason: 'signed-under-old-root', message }, currentWait());
  }
  return signed;
}

async function takeBack(
  ports: RotationSigningPorts,
  rotationId: string,
  abort: OverrideRow,
): ReturnType<RotationSigningActivities['abortCommandRotation']> {
  const { roots, trustDigest } = await ports.roots.read();
  if (roots.lastRotation?.id === rotationId && roots.lastRotation.outcome === 'dropped') return { kind: 'too-late' };
  if (roots.rotation === null && roots.lastRotation?.id !== rotationId) return { kind: 'nothing' };
  const published = await ports.facts.publication();
  // An add that is not published yet still may be, by a process that has read it: what takes it back must lie above that.
  const recordedVersion = (published?.version ?? 0) + (published?.digest === trustDigest ? 0 : 1);
  const view = await ports.roots.abort({ rotationId, actor: abort.actor, reason: abort.reason, recordedVersion });
  await writeEvidence(ports, { rotationId, stage: 'abort', view });
  return { kind: view.roots.rotation === null ? 'removed' : 'switched-back' };
}

/** All three gates again, in the order of ROT-024, at the moment of the act. */
async function assertMaySwitch(
  ports: RotationSigningPorts,
  input: { view: RootsView; rotationId: string },
): Promise<Pick<StageInput, 'fleet'>> {
  await refuseAborted(ports, input.rotationId);
  const overrides = await readOverrides(ports, input.rotationId);
  const rollout = await judgeRollout(ports, { view: input.view, gate: 'processes', overrides });
  assertOpen(rollout, currentWait());
  const { trustVersion } = rollout;
  assertOpen(await judgeNodes(ports, { version: trustVersion, gate: 'fleet', overrides }), currentWait());
  const fleet = await readFleetInput(ports, trustVersion);
  await writeEvidence(ports, { rotationId: input.rotationId, stage: 'fleet', view: input.view, fleet });
  return { fleet };
}

/** The time, from the issuance records; and no live process that could still sign under the old root. */
async function assertMayDrop(
  ports: RotationSigningPorts,
  input: { view: RootsView; rotation: RotationInProgress; switchedAt: number },
): Promise<number> {
  const { view, rotation, switchedAt } = input;
  if (!rotation.aborted) await refuseAborted(ports, rotation.id);
  const overrides = await readOverrides(ports, rotation.id);
  assertOpen(await judgeRollout(ports, { view, gate: 'signers', overrides }), currentWait());
  const facts = { switchedAt, lastWorkerNotAfter: await ports.facts.lastWorkerNotAfter(rotation.oldRoot), now: await ports.facts.now() };
  const opensAt = dropOpensAt(facts, ports.times);
  const verdict = judgeDrop(facts, ports.times);
  if (verdict.kind === 'closed') notYet({ ...verdict, retryAfterMs: Math.min(opensAt - facts.now, hour) }, currentWait());
  return opensAt;
}

/**
 * An abort that was recorded while the root was being written found nothing to take back and is over: the add takes itself back.
 * One that is recorded from here on finds the root.
 */
async function undoLateAdd(ports: RotationSigningPorts, rotationId: string, { roots }: RootsView): Promise<void> {
  const { abort } = await readOverrides(ports, rotationId);
  if (abort === undefined || roots.rotation?.id !== rotationId) return;
  await takeBack(ports, rotationId, abort);
  await refuseAborted(ports, rotationId);
}

/** The workflow cuts the step when an abort comes; this holds it back when the abort is recorded but the cut is still on its way. */
async function refuseAborted(ports: RotationSigningPorts, rotationId: string): Promise<void> {
  const { abort } = await readOverrides(ports, rotationId);
  if (abort !== undefined)
    notYet({ reason: 'abort-recorded', message: `${abort.actor} aborts this rotation: no further step forward` }, currentWait());
}

async function awaitFreshness(ports: RotationSigningPorts, atLeastMs: number): Promise<void> {
  const wait = currentWait();
  try {
    await ports.roots.assertFresh();
  } catch (error) {
    if (!isControlError(error) || error.code !== 'STALE_BUNDLE') throw error;
    notYet({ reason: String(error.details['reason']), message: error.message }, wait);
  }
  const retryAfterMs = atLeastMs - wait.elapsedMs;
  if (retryAfterMs > 0) notYet({ reason: 'settling', message: 'fresh again; the step is tried again in a moment', retryAfterMs }, wait);
}
