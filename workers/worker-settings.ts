/** Sizes and pauses of our workers, set by hand: the SDK derives some from the heap's limit, which is not the machine's. */
import type { WorkerOptions } from '@temporalio/worker';

const pollers = Object.freeze({ type: 'autoscaling', minimum: 2, maximum: 20, initial: 5 } as const);

/** Below the supervisor's kill delay: a step under way ends, or is given back. */
const shutdown = Object.freeze({ shutdownGraceTime: '5 seconds', shutdownForceTime: '8 seconds' } as const);

/**
 * How workflow code runs. What is cut short at `isolateExecutionTimeout` takes the whole process with it (Node finds the stack of its async
 * hooks corrupted), so it lies above the 10 s after which the server gives a task out again: a machine that is slow loses a task, never its
 * workers. The SDK reads it and does not declare it.
 */
export const workflowSandbox: Partial<WorkerOptions> = Object.freeze({
  reuseV8Context: true,
  workflowThreadPoolSize: 1,
  isolateExecutionTimeout: '30 seconds',
});

/** Looks of runs that hold a slot while they wait for a word (workers/run-words.ts). */
export const runWaitsAtOnce = 250;

export const controlWorkerSettings: Partial<WorkerOptions> = Object.freeze({
  maxCachedWorkflows: 300,
  maxConcurrentWorkflowTaskExecutions: 40,
  // However many wait, as many others go on.
  maxConcurrentActivityTaskExecutions: runWaitsAtOnce + 50,
  ...workflowSandbox,
  workflowTaskPollerBehavior: pollers,
  activityTaskPollerBehavior: pollers,
  ...shutdown,
});

/** Signs only: it polls no workflow task. */
export const signingWorkerSettings: Partial<WorkerOptions> = Object.freeze({
  maxConcurrentActivityTaskExecutions: 20,
  activityTaskPollerBehavior: pollers,
  ...shutdown,
});

/** Each step holds a connection to a machine for seconds, or for minutes where a program is brought over a slow line. */
export const hostsWorkerSettings: Partial<WorkerOptions> = Object.freeze({
  maxConcurrentActivityTaskExecutions: 50,
  activityTaskPollerBehavior: pollers,
  ...shutdown,
});
