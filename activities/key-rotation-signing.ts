/**
 * The activities of a key's exchange that touch the key: all of them run where private keys are. Each reads how the key stands,
 * judges its gate and its time itself, takes a step that is idempotent by the keys it names, and writes its evidence. A repeated
 * call finds the step done, skips the gate, and only makes up for evidence that is missing.
 */
import { ControlError } from '../domain/errors.ts';
import type { Verdict } from '../domain/rotation/gates.ts';
import { type ExchangedKey, exchanges, type KeyStanding, type RenewedCa } from '../domain/rotation/key-exchanges.ts';
import { hour, showInstant } from '../domain/time.ts';
import { type KeyStage, type KeyStageFacts, parseKeyEvidence } from '../pki/audit/key-evidence.ts';
import { translatedForHolder } from './failures.ts';
import type { ExchangedKeyPort, KeyRotationPorts, KeyView } from './key-rotation-ports.ts';
import { currentWait, notYet } from './not-yet.ts';
import { answer, assertOpen, type GateReport, readOverrides } from './rotation-gates.ts';

export type KeyGateName = 'processes' | 'signers' | 'confirm';

/** Names the exchange and the keys it means: what makes a step idempotent. */
export interface KeyOrder {
  readonly rotationId: string;
  readonly key: ExchangedKey;
  readonly subject: RenewedCa | '';
  readonly from: string | null;
  readonly to: string | null;
}

export interface KeyPlanned {
  /** The workflow's own, or that of a terminated run it takes up. */
  readonly rotationId: string;
  readonly from: string | null;
  readonly to: string | null;
  /** An abort is recorded: go back instead of forward. */
  readonly abort: { readonly actor: string; readonly reason: string } | null;
}

export interface KeyStepDone {
  readonly from: string | null;
  readonly to: string | null;
  /** When the next step opens; null: at once. */
  readonly opensAt: number | null;
}

export interface KeyTakenBack {
  readonly kind: 'nothing' | 'removed' | 'switched-back' | 'too-late';
  readonly opensAt: number | null;
}

export interface KeyRotationSigningActivities {
  planKeyExchange(input: KeyOrder): Promise<KeyPlanned>;
  addKey(input: KeyOrder): Promise<KeyStepDone>;
  awaitKeyProcesses(input: KeyOrder & { gate: KeyGateName; patienceMs: number | null }): Promise<GateReport>;
  promoteKey(input: KeyOrder): Promise<KeyStepDone>;
  retireKey(input: KeyOrder & { takenBack: boolean }): Promise<void>;
  abortKeyExchange(input: KeyOrder): Promise<KeyTakenBack>;
  recordKeyExchange(input: KeyOrder): Promise<void>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export function createKeyRotationSigningActivities(ports: KeyRotationPorts): KeyRotationSigningActivities {
  const portOf = ({ key, subject }: KeyOrder): ExchangedKeyPort => ports.key(key, subject);
  return translatedForHolder<KeyRotationSigningActivities>({
    async planKeyExchange(order) {
      const view = await portOf(order).read();
      const taken = await takenUp(ports, order);
      const planned = { ...order, ...(taken ?? { from: signing(view)?.id ?? null, to: waiting(view)?.id ?? null }) };
      await writeEvidence(ports, planned, { stage: 'plan', view });
      const { abort } = await readOverrides(ports, planned.rotationId);
      const { rotationId, from, to } = planned;
      return { rotationId, from, to, abort: abort === undefined ? null : { actor: abort.actor, reason: abort.reason } };
    },

    async addKey(order) {
      const refuse = (): Promise<void> => refuseAborted(ports, order, 'add');
      const view = await portOf(order).add({ from: order.from, refuse });
      const to = order.to ?? waiting(view)?.id ?? signing(view)?.id ?? null;
      await undoLateAdd(ports, { ...order, to }, view);
      await writeEvidence(ports, { ...order, to }, { stage: 'add', view });
      return { from: order.from, to, opensAt: opensAt(view, exchanges[order.key].promotes ? to : order.from) };
    },

    async awaitKeyProcesses({ gate, patienceMs, ...order }) {
      const { view, verdict, processes } = await judge(ports, order, gate);
      if (gate === 'processes' && verdict.kind === 'open') await writeEvidence(ports, order, { stage: 'processes', view, processes });
      const count = verdict.kind === 'closed' ? verdict.behind.length : 0;
      return answer({ verdict, trustVersion: 0, count }, { wait: currentWait(), patienceMs, now: ports.now() });
    },

    async promoteKey(order) {
      const to = known(order.to);
      const before = await portOf(order).read();
      if (signing(before)?.id !== to) await assertMayPromote(ports, order, before);
      const view = await portOf(order).promote({ to });
      await writeEvidence(ports, order, { stage: 'promote', view });
      return { from: order.from, to, opensAt: opensAt(view, order.from) };
    },

    async retireKey({ takenBack, ...order }) {
      const { from } = order;
      const before = await portOf(order).read();
      const former = find(before, from);
      if (former !== undefined) await assertMayRetire(ports, order, { former, takenBack });
      const view = from === null ? before : await portOf(order).retire({ from });
      await writeEvidence(ports, order, { stage: 'retire', view });
    },

    async abortKeyExchange(order) {
      const { abort } = await readOverrides(ports, order.rotationId);
      if (abort === undefined) {
        throw new ControlError('INVALID_STATE', `no abort of rotation ${order.rotationId} is recorded`, {
          details: { reason: 'not-recorded' },
        });
      }
      return takeBack(ports, order);
    },

    async recordKeyExchange(order) {
      await writeEvidence(ports, order, { stage: 'confirm', view: await portOf(order).read() });
    },
  });
}

const signing = ({ keys }: KeyView): KeyStanding | undefined => keys.find(({ state }) => state === 'signing');
const waiting = ({ keys }: KeyView): KeyStanding | undefined => keys.find(({ state }) => state === 'waiting');
const find = ({ keys }: KeyView, id: string | null): KeyStanding | undefined => keys.find((key) => key.id === id);
const opensAt = (view: KeyView, id: string | null): number | null => find(view, id)?.opensAt ?? null;

/** The workflow asks for a step only behind the one before it; whoever calls by hand is told. */
function known(to: string | null): string {
  if (to !== null) return to;
  throw new ControlError('INVALID_INPUT', 'the step names no key', { details: { reason: 'no-key-named' } });
}

/** A terminated run of the same workflow, known by the evidence it left. */
async function takenUp(ports: KeyRotationPorts, { rotationId }: KeyOrder): Promise<Pick<KeyOrder, 'rotationId' | 'from' | 'to'> | null> {
  const workflowId = rotationId.slice(0, rotationId.lastIndexOf('/'));
  const unfinished = await ports.evidence.unfinished(workflowId);
  if (unfinished === null) return null;
  const last = (await ports.evidence.read(unfinished)).at(-1);
  if (last === undefined) return null;
  const { from, to } = parseKeyEvidence(last.document);
  return { rotationId: unfinished, from, to };
}

interface Judged {
  readonly view: KeyView;
  readonly verdict: Verdict;
  readonly processes: KeyStageFacts['processes'];
}

async function judge(ports: KeyRotationPorts, order: KeyOrder, gate: KeyGateName): Promise<Judged> {
  const port = ports.key(order.key, order.subject);
  const view = await port.read();
  const { verdict, processes } = await port.processes(view);
  const forced = (await readOverrides(ports, order.rotationId)).isForced(gate);
  return { view, verdict: forced ? { kind: 'open' } : verdict, processes };
}

async function assertMayPromote(ports: KeyRotationPorts, order: KeyOrder, view: KeyView): Promise<void> {
  await refuseAborted(ports, order, 'promote');
  await assertGate(ports, order, 'processes');
  await assertTime(ports, opensAt(view, order.to), 'promote-too-early');
}

async function assertMayRetire(
  ports: KeyRotationPorts,
  order: KeyOrder,
  { former, takenBack }: { former: KeyStanding; takenBack: boolean },
): Promise<void> {
  if (!takenBack) await refuseAborted(ports, order, 'retire');
  await assertGate(ports, order, exchanges[order.key].promotes ? 'signers' : 'processes');
  await assertTime(ports, former.opensAt, 'retire-too-early');
}

async function assertGate(ports: KeyRotationPorts, order: KeyOrder, gate: KeyGateName): Promise<void> {
  const { verdict } = await judge(ports, order, gate);
  assertOpen({ verdict, trustVersion: 0, count: 0 }, currentWait());
}

async function assertTime(ports: KeyRotationPorts, opens: number | null, reason: string): Promise<void> {
  const now = await ports.clock();
  if (opens === null || now >= opens) return;
  notYet({ reason, message: `it opens at ${showInstant(opens)}`, retryAfterMs: Math.min(opens - now, hour) }, currentWait());
}

const stepOrder = Object.freeze(['add', 'promote', 'retire'] as const);

/** The workflow cuts the step when an abort comes; this holds it back when the abort is recorded but the cut is still on its way. */
async function refuseAborted(ports: KeyRotationPorts, { rotationId, key }: KeyOrder, step: (typeof stepOrder)[number]): Promise<void> {
  if (stepOrder.indexOf(step) > stepOrder.indexOf(exchanges[key].returnsUntil)) return;
  const { abort } = await readOverrides(ports, rotationId);
  if (abort !== undefined)
    notYet({ reason: 'abort-recorded', message: `${abort.actor} aborts this exchange: no further step forward` }, currentWait());
}

/** By how the key stands, not by what the workflow remembers: a step may have happened whose answer was lost. */
async function takeBack(ports: KeyRotationPorts, order: KeyOrder): Promise<KeyTakenBack> {
  const view = await ports.key(order.key, order.subject).read();
  if (signing(view)?.id === (order.from ?? undefined)) return withdraw(ports, order, view);
  const returns = exchanges[order.key].returnsUntil === 'retire' && find(view, order.from) !== undefined;
  return returns ? switchBack(ports, order, view) : { kind: 'too-late', opensAt: null };
}

/** The next one has not signed, and may leave at any time; or it has, before a switch back whose answer was lost. */
async function withdraw(ports: KeyRotationPorts, order: KeyOrder, view: KeyView): Promise<KeyTakenBack> {
  const next = find(view, order.to) ?? waiting(view);
  if (next?.state === 'former') return { kind: 'switched-back', opensAt: next.opensAt };
  const begun = next !== undefined || (await hasStage(ports, order, 'add'));
  const left = next === undefined ? view : await ports.key(order.key, order.subject).retire({ from: next.id });
  await writeEvidence(ports, { ...order, to: next?.id ?? order.to }, { stage: 'abort', view: left });
  return { kind: begun ? 'removed' : 'nothing', opensAt: null };
}

async function switchBack(ports: KeyRotationPorts, order: KeyOrder, before: KeyView): Promise<KeyTakenBack> {
  const view = await ports.key(order.key, order.subject).promote({ to: known(order.from) });
  await writeEvidence(ports, order, { stage: 'abort', view });
  return { kind: 'switched-back', opensAt: opensAt(view, signing(before)?.id ?? null) };
}

/**
 * An abort that was recorded while the key was being made found nothing to take back and is over: the add takes itself back, where
 * that can still be done. One that is recorded from here on finds the key.
 */
async function undoLateAdd(ports: KeyRotationPorts, order: KeyOrder, view: KeyView): Promise<void> {
  const { abort } = await readOverrides(ports, order.rotationId);
  if (abort === undefined || find(view, order.to)?.state !== 'waiting') return;
  await takeBack(ports, order);
  await refuseAborted(ports, order, 'add');
}

async function hasStage(ports: KeyRotationPorts, { rotationId }: KeyOrder, stage: KeyStage): Promise<boolean> {
  return (await ports.evidence.read(rotationId)).some((row) => parseKeyEvidence(row.document).stage === stage);
}

interface Stage {
  readonly stage: KeyStage;
  readonly view: KeyView;
  readonly processes?: KeyStageFacts['processes'];
}

/** Once a stage: a repeated step finds it there. The order of the documents in time is the order of the stages. */
async function writeEvidence(ports: KeyRotationPorts, order: KeyOrder, { stage, view, processes = null }: Stage): Promise<void> {
  const earlier = (await ports.evidence.read(order.rotationId)).map((row) => parseKeyEvidence(row.document));
  if (earlier.some((document) => document.stage === stage)) return;
  const { rows, abort } = await readOverrides(ports, order.rotationId);
  await ports.evidence.write({
    ...order,
    trustDomain: view.trustDomain,
    stage,
    at: Math.max(Math.floor(await ports.clock()), ...earlier.map((document) => document.at + 1)),
    actor: stage === 'abort' ? (abort?.actor ?? 'system') : 'system',
    bundle: view.bundle,
    keys: view.keys.map(({ id, state, opensAt: opens }) => ({ id, state, opensAt: opens === null ? null : Math.floor(opens) })),
    processes,
    overrides: rows.map(({ kind, subject, actor, reason, at }) => ({ kind, subject, actor, reason, at: Math.floor(at) })),
  });
}
