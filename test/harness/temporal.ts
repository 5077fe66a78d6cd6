/**
 * A real Temporal development server for tests, with the clock that skips: whenever a workflow only waits, the server moves
 * its time forward, so a day passes in milliseconds. Each skip adds an event of its own to the history (`isSkip`).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime, Worker, type WorkerOptions } from '@temporalio/worker';
import { startTemporal } from '../../scripts/engines/temporal.mjs';
import { searchAttributes, taskQueues } from '../../temporal.config.ts';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import { workflowSandbox } from '../../workers/worker-settings.ts';

export interface TestTemporal {
  readonly address: string;
  readonly connection: Connection;
  readonly native: NativeConnection;
  /** Workflows it starts skip time. */
  readonly skipping: Client;
  /** Workflows it starts live in real time. */
  readonly client: Client;
  createWorker(options: Omit<WorkerOptions, 'connection' | 'namespace'>): Promise<Worker>;
  stop(): Promise<void>;
}

let quiet = false;

/** The SDK's runtime is one per process; without this it writes every benign failure to stderr. */
export function installRuntime(): void {
  if (quiet) return;
  quiet = true;
  Runtime.install({ logger: new DefaultLogger(process.env['TEST_TEMPORAL_LOG'] === '1' ? 'DEBUG' : 'ERROR') });
}

/** @param settings of the server, as name=value: a limit that a test wants to meet sooner */
export async function startTestTemporal(settings: string[] = []): Promise<TestTemporal> {
  installRuntime();
  const home = mkdtempSync(join(tmpdir(), 'bc-temporal-'));
  const server = await startTemporal({ home, searchAttributes: { ...searchAttributes }, settings });
  const connection = await Connection.connect({ address: server.address });
  const skippingConnection = await Connection.connect({ address: server.address });
  skipTime(skippingConnection);
  const native = await NativeConnection.connect({ address: server.address });
  return {
    address: server.address,
    connection,
    native,
    client: new Client({ connection }),
    skipping: new Client({ connection: skippingConnection }),
    createWorker: async (options) =>
      Worker.create({
        connection: native,
        namespace: 'default',
        maxCachedWorkflows: 50,
        ...workflowSandbox,
        ...(await bundleFor(options)),
        ...options,
      }),
    async stop() {
      await Promise.all([connection.close(), skippingConnection.close(), native.close()]);
      await server.stop();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** The SDK has no option for it yet: the request is the same, with one field more. */
function skipTime(connection: Connection): void {
  const service = connection.workflowService;
  const start = service.startWorkflowExecution.bind(service) as unknown as (...args: unknown[]) => Promise<never>;
  const skipping = (request: object, ...rest: unknown[]): Promise<never> =>
    start({ ...request, timeSkippingConfig: { enabled: true } }, ...rest);
  service.startWorkflowExecution = skipping as unknown as typeof service.startWorkflowExecution;
}

const bundleFor = async (options: Partial<WorkerOptions>): Promise<Partial<WorkerOptions>> =>
  'workflowBundle' in options || options.workflowsPath !== undefined ? {} : { workflowBundle: await loadWorkflowBundle() };

/** Options of a worker that runs activities alone. */
export const activitiesAlone = Object.freeze({ workflowBundle: undefined as never });

let shared: Promise<TestTemporal> | undefined;

/** The server of this process; mocha stops it after its last test. */
export function sharedTemporal(): Promise<TestTemporal> {
  shared ??= startTestTemporal();
  return shared;
}

export interface SharedWorkflows {
  /** Nobody runs workflows, as when every worker is down; the next test has them again. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

/**
 * One worker for the workflows of all tests of a describe, on the queue bc-control; each test brings workers for its activities. To make
 * the sandbox of one takes half a second of a processor, and most tests have no use for one of their own.
 */
export function useWorkflows(): SharedWorkflows {
  let current: { readonly worker: Worker; readonly run: Promise<void> } | undefined;
  const start = async (): Promise<void> => {
    if (current !== undefined) return;
    const worker = await (await sharedTemporal()).createWorker({ taskQueue: taskQueues.control });
    current = { worker, run: worker.run() };
  };
  const stop = async (): Promise<void> => {
    const last = current;
    current = undefined;
    last?.worker.shutdown();
    await last?.run;
  };
  beforeEach(start);
  after(stop);
  return { start, stop };
}

if (typeof after === 'function') {
  after(async function stopTemporal() {
    this.timeout(30_000);
    await (await shared)?.stop();
    shared = undefined;
  });
}
