/** A worker that runs workflows and no activities, in a process of its own that a test may kill. Its argument is the server's address. */
import { NativeConnection, Worker } from '@temporalio/worker';
import { taskQueues } from '../../temporal.config.ts';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import { installRuntime } from '../harness/temporal.ts';

installRuntime();
process.stdin.on('end', () => process.exit(0)).resume();
const connection = await NativeConnection.connect({ address: String(process.argv[2]) });
const worker = await Worker.create({
  connection,
  namespace: 'default',
  taskQueue: taskQueues.control,
  workflowBundle: await loadWorkflowBundle(),
  maxCachedWorkflows: 100,
});
const running = worker.run();
process.stdout.write('ready\n');
await running;
await connection.close();
process.exit(0);
