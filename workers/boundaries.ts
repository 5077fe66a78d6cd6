/**
 * Which activity runs on which task queue: a queue is a trust boundary, and a worker registers exactly its rows. The
 * queues of later processes are listed, so that nobody polls them by accident.
 */
import { ControlError } from '../domain/errors.ts';
import { type TaskQueue, taskQueues } from '../temporal.config.ts';

export const boundaries: Readonly<Record<TaskQueue, readonly string[]>> = Object.freeze({
  // Nothing secret: reads and database changes.
  [taskQueues.control]: Object.freeze([
    'awaitFleet',
    'recordOverride',
    'recordKeyOverride',
    'planApproverSet',
    'storeApproverSet',
    'awaitApproverPublication',
    'awaitApproverFleet',
    'recordApproverOverride',
    'openBatch',
    'recordApproval',
    'recordApprovals',
    'awaitDecision',
    'cancelBatch',
    'awaitBatchEnd',
    'reconcileBatches',
    'batchCommands',
    'awaitCommand',
    'awaitCommands',
    'cancelCommands',
    'reconcile',
    'revokeNode',
    'awaitSessionsClosed',
    'recordRevocation',
    'planMachineRun',
    'openRunBatch',
    'observeMachine',
    'changeMachine',
    'takeBackAct',
    'recordRunMessage',
    'finishMachineRun',
    'placeMachines',
    'compareBoots',
    'openEnrolment',
    'awaitEnrolment',
    'endEnrolment',
  ]),
  // Command roots, worker key, audit key, secrets of runs; the keys of the authorities, tickets and workload tokens while they are exchanged.
  [taskQueues.signing]: Object.freeze([
    'planCommandRoot',
    'addCommandRoot',
    'awaitProcesses',
    'switchCommandRoot',
    'signAgain',
    'dropCommandRoot',
    'abortCommandRotation',
    'recordOutcome',
    'awaitFreshness',
    'planKeyExchange',
    'addKey',
    'awaitKeyProcesses',
    'promoteKey',
    'retireKey',
    'abortKeyExchange',
    'recordKeyExchange',
    'sealAudit',
    'releaseWave',
    'recordBatchEvidence',
    'recordApproverSet',
    'revokeSshCert',
    'writeNodeCredential',
    'enqueueCommands',
    'signExpiringAgain',
    'actOnMachine',
    'proveMachine',
    'changeCredential',
    'tellBoots',
  ]),
  [taskQueues.rootSigning]: Object.freeze([]),
  // Credentials of hosts, and nothing of the deployment's: it says which key a machine has, and signs none.
  [taskQueues.hosts]: Object.freeze(['reachHost', 'installDaemon', 'prepareIdentity', 'mintIdentity', 'startDaemon', 'tidyHost']),
});

export type Activities = Readonly<Record<string, (...args: never[]) => Promise<unknown>>>;

/**
 * The activities of one worker, all rows of its queue and no other.
 *
 * @throws ControlError INTERNAL when a part brings an activity of another boundary, or one is missing
 */
export function activitiesOf(queue: TaskQueue, parts: readonly Activities[]): Activities {
  const all = Object.assign({}, ...parts) as Activities;
  const allowed = boundaries[queue];
  const foreign = Object.keys(all).filter((name) => !allowed.includes(name));
  const missing = allowed.filter((name) => !Object.hasOwn(all, name));
  if (foreign.length + missing.length > 0) {
    throw new ControlError(
      'INTERNAL',
      `queue ${queue}: not allowed here: ${foreign.join(', ') || 'none'}; missing: ${missing.join(', ') || 'none'}`,
    );
  }
  return Object.freeze(all);
}
