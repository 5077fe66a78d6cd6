/** The two kinds of activity call, so that no workflow invents its own timeouts. */
import type { ActivityOptions } from '@temporalio/common';
import { taskQueues } from '../../temporal.config.ts';

const base: ActivityOptions = {
  // An attempt takes moments; this is how long the loss of a worker that was killed in the middle of one costs.
  startToCloseTimeout: '20 seconds',
  // A step waits as long as the outside needs; the workflow stays, an operator can pause, reset or abort.
  retry: { initialInterval: '1 second', backoffCoefficient: 2, maximumInterval: '30 seconds' },
  // A cancelled wait ends at once; what the activity had done is recognised when the step is repeated.
  cancellationType: 'TRY_CANCEL',
};

export const onControl: ActivityOptions = Object.freeze({ ...base, taskQueue: taskQueues.control });
export const onSigning: ActivityOptions = Object.freeze({ ...base, taskQueue: taskQueues.signing });
/** On a machine, over SSH: a step brings a program over a slow line, and beats meanwhile. */
export const onHosts: ActivityOptions = Object.freeze({
  ...base,
  taskQueue: taskQueues.hosts,
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: '20 seconds',
});
