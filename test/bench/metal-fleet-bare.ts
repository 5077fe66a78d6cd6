/**
 * What no control plane on this SDK goes below: workflows that only call as many activities as the provisioning of a machine does, which do
 * nothing, in one process with one worker and its client. No database, no signature, no gateway, no codec.
 */
import { Client, Connection } from '@temporalio/client';
import { NativeConnection, Worker } from '@temporalio/worker';
import { temporalConnectionOptions } from '../../runtime/temporal.ts';
import { controlWorkerSettings } from '../../workers/worker-settings.ts';
import { installRuntime } from '../harness/temporal.ts';

/** Of a run that meets no obstacle: its history has as many. */
const activitiesOfRun = 16;
const taskQueue = 'bench-bare';
const warmUps = 20;

/** @returns processor time of this process for each workflow, in ms */
export async function bareCpuMs(env: Readonly<Record<string, string | undefined>>, workflows: number): Promise<number> {
  installRuntime();
  const { connectionOptions, namespace } = temporalConnectionOptions(env);
  const native = await NativeConnection.connect(connectionOptions);
  const connection = await Connection.connect(connectionOptions);
  const client = new Client({ connection, namespace });
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const worker = await Worker.create({
    ...controlWorkerSettings,
    connection: native,
    namespace,
    taskQueue,
    workflowsPath: new URL(`./fixtures/bare-run.${ending}`, import.meta.url).pathname,
    activities: { step: async () => undefined },
  });
  const running = worker.run();
  const runAll = (name: string, count: number): Promise<unknown> =>
    Promise.all(
      Array.from({ length: count }, (_, at) =>
        client.workflow.execute('bareRun', { taskQueue, workflowId: `bench-bare/${name}/${at}`, args: [activitiesOfRun] }),
      ),
    );
  try {
    await runAll('warm-up', warmUps);
    const before = process.cpuUsage();
    await runAll('measured', workflows);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000 / workflows;
  } finally {
    worker.shutdown();
    await running;
    await Promise.all([connection.close(), native.close()]);
  }
}
