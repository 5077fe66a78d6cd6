/**
 * The story of every exchange of a key that is no command root: add, wait for whoever must have it, promote, wait until nothing
 * under the former one is valid, retire, record. domain/rotation/key-exchanges.ts says which of these a key needs.
 *
 * Like a rotation of the command root, the workflow is the convenience. It holds no key and proves nothing: each step reads its gate
 * and its time where the key lives, and is idempotent by the keys it names, so a step that is repeated or cut short changes nothing.
 * A run that was terminated half way is taken up by the next start under its old rotation id, which its evidence names.
 */
import { allHandlersFinished, condition, proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { KeyRotationControlActivities } from '../../activities/key-rotation-control.ts';
import type { KeyOrder, KeyRotationSigningActivities, KeyStepDone } from '../../activities/key-rotation-signing.ts';
import { type ExchangedKey, exchanges } from '../../domain/rotation/key-exchanges.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { refusing } from '../shared/failures.ts';
import { installHandlers, type OverrideHandler } from '../shared/lifecycle-handlers.ts';
import { parseStartOf, type StartMessage } from '../shared/lifecycle-messages.ts';
import { AbortRequested, Steps } from '../shared/steps.ts';
import { describeKeyRotation } from './details.ts';
import * as messages from './messages.ts';
import { KeyRotationState } from './state.ts';

type KeySteps = Steps<messages.KeyPhase, messages.KeyGate, KeyRotationState>;

const signing = proxyActivities<KeyRotationSigningActivities>(onSigning);
const { recordKeyOverride } = proxyActivities<KeyRotationControlActivities>(onControl);

const passing: ReadonlySet<messages.KeyPhase> = new Set(['promoting', 'retiring', 'recording']);

export async function exchangeKey(key: ExchangedKey, input: StartMessage | undefined): Promise<messages.KeyRotationResult> {
  const steps = open(key, input);
  await plan(steps);
  try {
    await goForward(steps);
  } catch (error) {
    if (!(error instanceof AbortRequested)) throw error;
    await takeBack(steps);
  }
  return finish(steps);
}

function open(key: ExchangedKey, input: StartMessage | undefined): KeySteps {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const read = refusing(() => ({
    subject: messages.subjectOf(key, workflowId),
    start: parseStartOf(messages.keyWorkflows[key].type, input),
  }));
  const state = new KeyRotationState({ rotationId: `${workflowId}/${firstExecutionRunId}`, key, ...read, now: Date.now() });
  const steps: KeySteps = new Steps(state, {
    describe: () => describeKeyRotation(state.status()),
    passing,
    holdsAsBlocked: () => true,
  });
  installHandlers<messages.KeyPhase, messages.KeyGate, messages.KeyRotationStatus>(steps, {
    query: messages.status,
    status: () => state.status(),
    overrides: overridesOf(state),
    record: (override) =>
      recordKeyOverride({ rotationId: state.rotationId, key, ...override, leftBehind: state.behind === null ? [] : state.behind.names }),
  });
  return steps;
}

const overridesOf = (state: KeyRotationState): readonly OverrideHandler[] => [
  {
    update: messages.force,
    signal: messages.forceSignal,
    read: (value) => {
      const { phase, ...words } = state.readForce(value);
      return { kind: 'force', subject: phase, ...words };
    },
    description: 'Open a gate although a process is behind {phase, actor, reason, approvals}',
  },
  {
    update: messages.abort,
    signal: messages.abortSignal,
    read: (value) => ({ kind: 'abort', subject: '', ...state.readAbort(value) }),
    description: 'Take the exchange back {actor, reason, approvals}',
  },
];

const orderOf = ({ rotationId, key, subject, from, to }: KeyRotationState): KeyOrder => ({ rotationId, key, subject, from, to });

async function plan(steps: KeySteps): Promise<void> {
  const { state } = steps;
  steps.enter('planning');
  const planned = await steps.take(() => signing.planKeyExchange(orderOf(state)), { mayFail: true });
  state.rotationId = planned.rotationId;
  state.from = planned.from;
  state.to = planned.to;
  state.aborting = planned.abort;
  state.planned = true;
}

async function goForward(steps: KeySteps): Promise<void> {
  const { state } = steps;
  const { promotes, retires } = exchanges[state.key];
  steps.enter('adding');
  const added = await steps.take(() => signing.addKey(orderOf(state)), { mayFail: true });
  state.from = added.from;
  state.to = added.to;
  state.took('add');
  await passProcesses(steps, 'processes');
  const done = promotes ? await promote(steps, added.opensAt) : added;
  if (retires) await retire(steps, { opensAt: done.opensAt, takenBack: false });
}

async function promote(steps: KeySteps, opensAt: number | null): Promise<KeyStepDone> {
  const { state } = steps;
  await untilOpen(steps, { phase: 'waiting-promote', opensAt, waitingOn: 'copies without the next key' });
  steps.enter('promoting');
  const promoted = await steps.take(() => signing.promoteKey(orderOf(state)));
  state.took('promote');
  await passProcesses(steps, 'signers');
  return promoted;
}

async function retire(steps: KeySteps, { opensAt, takenBack }: { opensAt: number | null; takenBack: boolean }): Promise<void> {
  const { state } = steps;
  await untilOpen(steps, { phase: 'waiting-retire', opensAt, waitingOn: 'what the former one signed' });
  steps.enter('retiring');
  await steps.take(() => signing.retireKey({ ...orderOf(state), takenBack }));
  state.took('retire');
  await passProcesses(steps, 'confirm');
}

/** What an abort leaves to do: nothing, the former key's own wait, or, when it came too late, all that was left. */
async function takeBack(steps: KeySteps): Promise<void> {
  const { state } = steps;
  steps.turnBack();
  steps.enter('aborting');
  const taken = await steps.take(() => signing.abortKeyExchange(orderOf(state)));
  if (taken.kind === 'too-late') return goForward(steps);
  state.outcome = 'aborted';
  if (taken.kind === 'nothing') return;
  if (taken.kind === 'removed') return passProcesses(steps, 'confirm');
  [state.from, state.to] = [state.to, state.from];
  return retire(steps, { opensAt: taken.opensAt, takenBack: true });
}

async function finish(steps: KeySteps): Promise<messages.KeyRotationResult> {
  const { state } = steps;
  steps.enter('recording');
  state.outcome ??= 'exchanged';
  await steps.take(() => signing.recordKeyExchange(orderOf(state)));
  await condition(allHandlersFinished);
  steps.enter('done');
  return state.result();
}

const processPhases = Object.freeze({ processes: 'waiting-processes', signers: 'waiting-signers', confirm: 'confirming' } as const);

async function passProcesses(steps: KeySteps, gate: messages.KeyGate): Promise<void> {
  const { state } = steps;
  const { counts } = exchanges[state.key];
  if (counts === 'nobody') return;
  steps.enter(processPhases[gate], { waitingOn: [counts === 'gateways' ? 'gateways' : 'processes'] });
  await steps.pass(gate, (patienceMs) => signing.awaitKeyProcesses({ ...orderOf(state), gate, patienceMs }));
}

interface Opening {
  readonly phase: 'waiting-promote' | 'waiting-retire';
  readonly opensAt: number | null;
  readonly waitingOn: string;
}

async function untilOpen(steps: KeySteps, { phase, opensAt, waitingOn }: Opening): Promise<void> {
  if (opensAt === null || opensAt <= Date.now()) return;
  steps.enter(phase, { waitingOn: [waitingOn], deadlineMs: opensAt });
  steps.state.opensAt = opensAt;
  steps.show();
  await steps.until(opensAt, `${phase}: ${waitingOn}`);
}
