/**
 * What both workers are made of: database, Temporal, health, one Temporal worker that runs until the process ends. Parts are
 * closed in the reverse order of their start, also when a later part fails to start.
 */
import { Client, Connection } from '@temporalio/client';
import { NativeConnection, Worker, type WorkerOptions } from '@temporalio/worker';
import { createDatabase, type Database } from '../drizzle/client.ts';
import { migrate } from '../drizzle/migrate.ts';
import { createHealth, type Health } from '../runtime/health.ts';
import type { ProcessContext, RunningProcess } from '../runtime/lifecycle.ts';
import { createDataConverter } from '../runtime/payload-codec.ts';
import { type TemporalTarget, temporalConnectionOptions } from '../runtime/temporal.ts';
import type { WorkerConfig } from './config.ts';
import { installTemporalRuntime } from './temporal-runtime.ts';

export type Closing = (() => Promise<void> | void)[];

export interface WorkerParts {
  readonly context: ProcessContext;
  readonly db: Database;
  readonly health: Health;
  readonly client: Client;
  readonly connection: Connection;
  readonly namespace: string;
  readonly closing: Closing;
  /** Connects, polls, and ends the process if the worker ends by itself. */
  runWorker(options: Omit<WorkerOptions, 'connection' | 'namespace' | 'dataConverter'>): Promise<void>;
}

export interface WorkerProcess {
  readonly name: string;
  readonly config: WorkerConfig;
  readonly context: ProcessContext;
  readonly build: (parts: WorkerParts) => Promise<void>;
}

export async function startWorkerProcess({ name, config, context, build }: WorkerProcess): Promise<RunningProcess> {
  const closing: Closing = [];
  const stop = async (): Promise<void> => {
    for (const close of closing.splice(0).toReversed()) await close();
  };
  try {
    const metrics = await installTemporalRuntime(context.log);
    const db = createDatabase(config.databaseUrl, { applicationName: `better-compute ${name}` });
    closing.push(() => db.close());
    await migrate(db.pool);
    const health = createHealth({ process: name });
    health.addSource(metrics);
    health.check('database', async () => void (await db.query({ text: 'select 1' })));
    const temporal = await connect(config, context, closing);
    health.check(
      'temporal',
      async () =>
        void (await temporal.connection.withDeadline(Date.now() + 1_500, () => temporal.connection.workflowService.getSystemInfo({}))),
    );
    await build({ context, db, health, closing, ...temporal });
    const server = await health.listen(config.metrics);
    closing.push(() => server.close());
    return { addresses: { metrics: server.address }, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function connect(
  config: WorkerConfig,
  context: ProcessContext,
  closing: Closing,
): Promise<Pick<WorkerParts, 'client' | 'connection' | 'namespace' | 'runWorker'>> {
  const target = temporalConnectionOptions(context.env);
  const { connectionOptions, namespace } = target;
  const dataConverter = createDataConverter(config.codecKey);
  const connection = await Connection.connect(connectionOptions);
  closing.push(() => connection.close());
  const client = new Client({ connection, namespace, dataConverter });
  return {
    connection,
    client,
    namespace,
    runWorker: (options) => runWorker({ target, context, closing, options: { ...options, namespace, dataConverter } }),
  };
}

async function runWorker(input: {
  target: TemporalTarget;
  context: ProcessContext;
  closing: Closing;
  options: Omit<WorkerOptions, 'connection'>;
}): Promise<void> {
  const { target, context, closing, options } = input;
  const native = await NativeConnection.connect(target.connectionOptions);
  closing.push(() => native.close());
  const worker = await Worker.create({ ...options, connection: native });
  const run = worker.run();
  run.catch((error: unknown) => context.fail(error));
  closing.push(async () => {
    if (worker.getState() === 'RUNNING') worker.shutdown();
    await run.catch(() => undefined);
  });
}
