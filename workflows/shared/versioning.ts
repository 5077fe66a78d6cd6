/**
 * The versioning behaviour by the getter form: a static one makes a server refuse every task of a worker that runs without
 * a deployment version, and the workflow hangs without a word. Local runs are unversioned.
 */
import { setWorkflowOptions, workflowInfo } from '@temporalio/workflow';

export function versioned(behavior: 'PINNED' | 'AUTO_UPGRADE', workflow: (...args: never[]) => Promise<unknown>): void {
  setWorkflowOptions(() => (workflowInfo().currentDeploymentVersion?.deploymentName ? { versioningBehavior: behavior } : {}), workflow);
}
