/**
 * Rotates the command-signing root of a running fleet without one rejected command.
 *
 * The workflow is the convenience: it remembers where the rotation is, waits, and shows who is behind. It holds no key and
 * proves nothing. Every step re-reads its gate from the database and is idempotent by the rotation's id, so a step that is
 * repeated, cut short or started by hand out of order is refused or changes nothing. Daemons judge the result for themselves.
 *
 * One at a time: the id is fixed, and the key bundle refuses a second rotation. A workflow that was terminated half way is taken
 * up by the next start under its old rotation id. Runs longer than a release: AUTO_UPGRADE, so every change of the order of steps
 * goes behind `patched()` and is proven by the replay of test/histories.
 */
import { allHandlersFinished, condition, patched, proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { RotationControlActivities } from '../../activities/rotation-control.ts';
import type { RotationSigningActivities } from '../../activities/rotation-signing.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { refusing } from '../shared/failures.ts';
import { AbortRequested, Steps } from '../shared/steps.ts';
import { versioned } from '../shared/versioning.ts';
import { describe } from './details.ts';
import { installRotationHandlers, type RotationSteps } from './handlers.ts';
import { type Gate, type Phase, parseStart, type RotationResult, type StartMessage } from './messages.ts';
import { RotationState } from './state.ts';

const control = proxyActivities<RotationControlActivities>(onControl);
const signing = proxyActivities<RotationSigningActivities>(onSigning);
/** These may have a fleet's worth of signatures to make; they say how far they are. */
const { signAgain, dropCommandRoot } = proxyActivities<RotationSigningActivities>({
  ...onSigning,
  startToCloseTimeout: '30 minutes',
  heartbeatTimeout: '20 seconds',
});

const passing: ReadonlySet<Phase> = new Set(['resigning', 'dropping', 'recording']);
/** Histories from before hold under the name of their phase, and for an operator only. */
const holdsAsBlocked = (): boolean => patched('rotation-holds-as-blocked');

export async function rotateCommandRoot(input?: StartMessage): Promise<RotationResult> {
  const steps = open(input);
  await plan(steps);
  let signedAgain = { commands: 0, specs: 0 };
  try {
    await addAndSwitch(steps);
    signedAgain = await drop(steps);
  } catch (error) {
    if (!(error instanceof AbortRequested)) throw error;
    signedAgain = await takeBack(steps);
  }
  await confirm(steps);
  return finish(steps, signedAgain);
}
versioned('AUTO_UPGRADE', rotateCommandRoot);

function open(input: StartMessage | undefined): RotationSteps {
  const { workflowId, firstExecutionRunId } = workflowInfo();
  const start = refusing(() => {
    if (workflowId !== workflowIds.rotateCommandRoot) {
      throw new ControlError(
        'INVALID_INPUT',
        `rotateCommandRoot runs under the workflow id ${workflowIds.rotateCommandRoot} only, not ${workflowId}`,
      );
    }
    return parseStart(input);
  });
  const state = new RotationState(`${workflowId}/${firstExecutionRunId}`, start, Date.now());
  const steps: RotationSteps = new Steps(state, { describe: () => describe(state.status()), passing, holdsAsBlocked });
  installRotationHandlers(steps);
  return steps;
}

async function plan(steps: RotationSteps): Promise<void> {
  const { state } = steps;
  steps.enter('planning');
  const planned = await steps.take(() => signing.planCommandRoot({ rotationId: state.rotationId }), { mayFail: true });
  state.rotationId = planned.rotationId;
  state.oldRoot = planned.oldRoot;
  state.newRoot = planned.newRoot;
  state.aborting = planned.abort;
  state.planned = true;
}

async function addAndSwitch(steps: RotationSteps): Promise<void> {
  const { state } = steps;
  const { rotationId } = state;
  steps.enter('adding');
  const added = await steps.take(() => signing.addCommandRoot({ rotationId }), { mayFail: true });
  state.oldRoot = added.oldRoot;
  state.newRoot = added.newRoot;
  await passProcesses(steps, 'processes');
  steps.enter('waiting-fleet', { waitingOn: ['nodes'] });
  await passFleet(steps, 'fleet');
  steps.enter('switching');
  await steps.take(() => signing.switchCommandRoot({ rotationId }));
}

/** From the switch, or the switch back, to the drop of the root that no longer signs. */
async function drop(steps: RotationSteps): Promise<{ commands: number; specs: number }> {
  const { state } = steps;
  const { rotationId } = state;
  await passProcesses(steps, 'signers');
  steps.enter('resigning');
  const signed = await steps.take(() => signAgain({ rotationId }));
  state.dropOpensAt = signed.dropOpensAt;
  steps.enter('waiting-drop', { waitingOn: ['earliest drop'], deadlineMs: signed.dropOpensAt });
  await steps.until(signed.dropOpensAt, 'until the former root can be dropped');
  steps.enter('dropping');
  const last = await steps.take(() => dropCommandRoot({ rotationId }));
  state.dropped = true;
  return { commands: signed.commands + last.commands, specs: signed.specs + last.specs };
}

async function takeBack(steps: RotationSteps): Promise<{ commands: number; specs: number }> {
  const { state } = steps;
  steps.turnBack();
  steps.enter('aborting');
  const taken = await steps.take(() => signing.abortCommandRotation({ rotationId: state.rotationId }));
  // The drop may have happened in the moment the abort came: then it is the drop that counts.
  state.dropped = taken.kind === 'too-late';
  if (taken.kind !== 'too-late') state.outcome = 'aborted';
  return taken.kind === 'switched-back' ? drop(steps) : { commands: 0, specs: 0 };
}

async function confirm(steps: RotationSteps): Promise<void> {
  await passProcesses(steps, 'confirm');
  await passFleet(steps, 'confirm');
}

async function finish(steps: RotationSteps, signedAgain: { commands: number; specs: number }): Promise<RotationResult> {
  const { state } = steps;
  steps.enter('recording');
  state.outcome ??= 'dropped';
  await steps.take(() => signing.recordOutcome({ rotationId: state.rotationId }));
  await condition(allHandlersFinished);
  steps.enter('done');
  return {
    rotationId: state.rotationId,
    outcome: state.outcome,
    oldRoot: state.oldRoot,
    newRoot: state.newRoot,
    trustVersion: state.trustVersion,
    commandsSignedAgain: signedAgain.commands,
    specsSignedAgain: signedAgain.specs,
    overrides: state.overrides.size,
  };
}

const processPhases = Object.freeze({ processes: 'waiting-processes', signers: 'waiting-signers', confirm: 'confirming' } as const);

async function passProcesses(steps: RotationSteps, gate: Exclude<Gate, 'fleet'>): Promise<void> {
  const { state } = steps;
  steps.enter(processPhases[gate], { waitingOn: ['processes'] });
  state.trustVersion = await steps.pass(gate, (patienceMs) => signing.awaitProcesses({ rotationId: state.rotationId, gate, patienceMs }));
}

async function passFleet(steps: RotationSteps, gate: 'fleet' | 'confirm'): Promise<void> {
  const { state } = steps;
  const version = state.trustVersion ?? 0;
  await steps.pass(gate, (patienceMs) => control.awaitFleet({ rotationId: state.rotationId, gate, version, patienceMs }));
}
