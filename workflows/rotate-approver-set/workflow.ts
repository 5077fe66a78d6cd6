/**
 * Changes who approves (H-10): verify the change's signatures, store it, see the api publish it and every connected machine enforce it.
 *
 * The workflow is the convenience. A change has its force from the signatures of the old threshold and of the new one: they are counted
 * where it is planned, where it is stored, and by every machine, so nobody who starts this with a set of his own gets anywhere. Until it
 * is stored it can be aborted; from then on machines may hold it, and only another signed change leads back. Runs longer than a release:
 * AUTO_UPGRADE, so every change of the order of steps goes behind `patched()`.
 */
import { allHandlersFinished, condition, proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { ApproverSetActivities, ApproverSetSigningActivities } from '../../activities/approver-set-control.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { refusing } from '../shared/failures.ts';
import { installHandlers, type OverrideHandler } from '../shared/lifecycle-handlers.ts';
import { AbortRequested, Steps } from '../shared/steps.ts';
import { versioned } from '../shared/versioning.ts';
import { describeApproverSet } from './details.ts';
import * as messages from './messages.ts';
import { ApproverSetState } from './state.ts';

type SetSteps = Steps<messages.ApproverPhase, messages.ApproverGate, ApproverSetState>;

const control = proxyActivities<ApproverSetActivities>(onControl);
const signing = proxyActivities<ApproverSetSigningActivities>(onSigning);

const passing: ReadonlySet<messages.ApproverPhase> = new Set(['storing', 'recording']);

export async function rotateApproverSet(input: messages.RotateApproverSetInput): Promise<messages.ApproverSetResult> {
  const steps = open(input);
  const { state } = steps;
  const order = { rotationId: state.rotationId, change: state.change };
  try {
    steps.enter('planning');
    state.takePlan(await steps.take(() => control.planApproverSet(order), { mayFail: true }));
    state.planned = true;
    steps.enter('storing');
    await steps.take(() => control.storeApproverSet({ ...order, actor: state.actor }), { mayFail: true });
    state.stored = true;
    steps.enter('waiting-publication', { waitingOn: ['api'] });
    state.trustVersion = await steps.pass('publication', (patienceMs) => control.awaitApproverPublication({ ...order, patienceMs }));
    steps.enter('waiting-fleet', { waitingOn: ['nodes'] });
    const version = state.trustVersion;
    await steps.pass('fleet', (patienceMs) => control.awaitApproverFleet({ ...order, version, patienceMs }));
    steps.enter('recording');
    state.outcome = 'changed';
    await steps.take(() => signing.recordApproverSet({ rotationId: state.rotationId, epoch: state.change.epoch, actor: state.actor }));
  } catch (error) {
    if (!(error instanceof AbortRequested)) throw error;
    steps.turnBack();
    state.outcome = 'aborted';
  }
  await condition(allHandlersFinished);
  steps.enter('done');
  return state.result();
}
versioned('AUTO_UPGRADE', rotateApproverSet);

function open(input: unknown): SetSteps {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const { change, ...start } = refusing(() => {
    if (workflowId === workflowIds.rotateApproverSet) return messages.parseRotateApproverSet(input);
    throw new ControlError(
      'INVALID_INPUT',
      `rotateApproverSet runs under the workflow id ${workflowIds.rotateApproverSet} only, not ${workflowId}`,
    );
  });
  const state = new ApproverSetState({ rotationId: `${workflowId}/${firstExecutionRunId}`, start, change, now: Date.now() });
  const steps: SetSteps = new Steps(state, { describe: () => describeApproverSet(state.status()), passing, holdsAsBlocked: () => true });
  installHandlers<messages.ApproverPhase, messages.ApproverGate, messages.ApproverSetStatus>(steps, {
    query: messages.status,
    status: () => state.status(),
    overrides: overridesOf(state),
    record: (override) => control.recordApproverOverride({ rotationId: state.rotationId, ...override }),
  });
  return steps;
}

const overridesOf = (state: ApproverSetState): readonly OverrideHandler[] => [
  {
    update: messages.force,
    signal: messages.forceSignal,
    read: (value) => {
      const { phase, ...words } = state.readForce(value);
      return { kind: 'force', subject: phase, ...words };
    },
    description: 'End the wait although machines enforce another set {phase, actor, reason, approvals}',
  },
  {
    update: messages.exclude,
    signal: messages.excludeSignal,
    read: (value) => {
      const { node, ...words } = state.readExclude(value);
      return { kind: 'exclude', subject: node, ...words };
    },
    description: 'Go on without one machine {node, actor, reason, approvals}',
  },
  {
    update: messages.abort,
    signal: messages.abortSignal,
    read: (value) => ({ kind: 'abort', subject: '', ...state.readAbort(value) }),
    description: 'Leave the set as it is {actor, reason, approvals}',
  },
];
