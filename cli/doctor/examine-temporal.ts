/** Asks Temporal what doctor wants to know: attributes, pollers, workflows that cannot run. */
import proto from '@temporalio/proto';
import { searchAttributes, taskQueues } from '../../temporal.config.ts';
import { enrolmentTypes } from '../../workflows/enrol-node/messages.ts';
import { error, type Finding, messageOf } from './finding.ts';
import { judgeTemporal } from './judge-deployment.ts';

/** Queues whose workers belong to every deployment. */
const polledQueues = [taskQueues.control, taskQueues.signing];
/** A deployment that enrols nothing over SSH needs no hosts worker. */
const enrolling = `ExecutionStatus = 'Running' AND WorkflowType IN (${Object.values(enrolmentTypes)
  .map(({ type }) => `'${type}'`)
  .join(', ')})`;
const { TASK_QUEUE_TYPE_WORKFLOW: workflowQueue, TASK_QUEUE_TYPE_ACTIVITY: activityQueue } = proto.temporal.api.enums.v1.TaskQueueType;
const problemsShown = 20;

export async function examineTemporal(env: NodeJS.ProcessEnv): Promise<Finding[]> {
  try {
    return await ask(env);
  } catch (cause) {
    return [error('temporal.unreachable', messageOf(cause), 'better-compute start, or correct TEMPORAL_ADDRESS')];
  }
}

async function ask(env: NodeJS.ProcessEnv): Promise<Finding[]> {
  const { connectTemporal } = await import('../temporal.ts');
  const { client, address, close } = await connectTemporal(env);
  try {
    const { connection } = client;
    const namespace = client.options.namespace;
    const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
    const { count } = await client.workflow.count(enrolling);
    const queues = count > 0 ? [...polledQueues, taskQueues.hosts] : polledQueues;
    const pollers = await Promise.all(
      queues.map(async (name) => {
        const taskQueueType = name === taskQueues.control ? workflowQueue : activityQueue;
        const answer = await connection.workflowService.describeTaskQueue({ namespace, taskQueue: { name }, taskQueueType });
        return [name, answer.pollers?.length ?? 0] as const;
      }),
    );
    const problems: string[] = [];
    const query = "ExecutionStatus = 'Running' AND TemporalReportedProblems IS NOT NULL";
    for await (const workflow of client.workflow.list({ query })) {
      problems.push(workflow.workflowId);
      if (problems.length >= problemsShown) break;
    }
    const attributes = Object.fromEntries(Object.entries(customAttributes).map(([name, type]) => [name, String(type)]));
    return judgeTemporal({
      address,
      attributes,
      wantedAttributes: Object.keys(searchAttributes),
      pollers: Object.fromEntries(pollers),
      problems,
    });
  } finally {
    await close();
  }
}
