/**
 * The local Temporal: the CLI's development server with its state in a file under the state folder, so that workflows
 * survive a restart. Write-ahead logging makes it more than twice as fast as the default; timers below a second are exact
 * (they would take about one); the clock can be skipped and workflows paused, which tests and runbooks use.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { claimPort } from '../lib/free-port.mjs';
import { runCommand } from '../lib/run-command.mjs';
import { endLeftOver, startKept } from './kept-engine.mjs';
import { findTemporal } from './temporal-binary.mjs';

export { cacheFolder, findTemporal } from './temporal-binary.mjs';

const pragmas = ['journal_mode=wal', 'synchronous=normal'];
const dynamicConfig = [
  'frontend.WorkflowPauseEnabled=true',
  'frontend.WorkflowTimeSkippingEnabled=true',
  'history.timerProcessorMaxTimeShift="1ms"',
  'system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=2',
];

/**
 * @param {{ home: string, port?: number, uiPort?: number, searchAttributes?: Record<string, string>, codecEndpoint?: string, log?: string,
 *   setBy?: { port: string, uiPort: string }, binary?: string, settings?: string[] }} options
 *   ports: 0 for a free one; `searchAttributes`: name → type; `codecEndpoint`: where the UI has payloads decoded;
 *   `settings`: further dynamic configuration, as name=value
 */
export async function startTemporal({
  home,
  port = 0,
  uiPort = 0,
  searchAttributes = {},
  codecEndpoint,
  log = join(home, 'logs', 'temporal.log'),
  setBy = names,
  binary,
  settings = [],
}) {
  const folder = join(resolve(home), 'temporal');
  mkdirSync(home, { recursive: true, mode: 0o711 });
  for (const path of [folder, dirname(log)]) mkdirSync(path, { recursive: true, mode: 0o700 });
  const command = binary ?? (await findTemporal());
  const database = join(folder, 'temporal.db');
  await endEarlier(folder, database);
  const start = async () => {
    const ports = {
      port: await claimPort({ port, who: 'the local Temporal server', setBy: setBy.port }),
      uiPort: await claimPort({ port: uiPort, who: 'the Temporal UI', setBy: setBy.uiPort }),
      metrics: await claimPort({ port: 0, who: 'the metrics of the local Temporal server', setBy: 'free choice' }),
    };
    const engine = await startKept({
      name: 'Temporal',
      command,
      args: serverArgs({ ...ports, database, searchAttributes, codecEndpoint, settings }),
      env: { PATH: process.env.PATH ?? '', HOME: folder },
      stopSignal: 'SIGTERM',
      graceMs: 10_000,
      log,
      isReady: () => isServing(command, ports.port),
      readyWithinMs: 60_000,
    });
    return { engine, ports };
  };
  const { engine, ports } = await untilPortsAreFree(start);
  writeFileSync(join(folder, 'pid'), `${engine.pid}\n`);
  return {
    address: `127.0.0.1:${ports.port}`,
    uiUrl: `http://127.0.0.1:${ports.uiPort}`,
    metricsAddress: `127.0.0.1:${ports.metrics}`,
    pid: engine.pid,
    exited: engine.exited,
    stop: engine.stop,
  };
}

/**
 * Between the choice of a port and its use another program may take it, and the server takes some for itself besides: chosen anew then. A
 * port that was asked for and is taken is said so by the choice.
 */
async function untilPortsAreFree(start, attempts = 3) {
  try {
    return await start();
  } catch (error) {
    if (attempts === 1 || !/address already in use/.test(`${error.message} ${error.hint}`)) throw error;
    return untilPortsAreFree(start, attempts - 1);
  }
}

const names = Object.freeze({ port: 'BETTER_COMPUTE_TEMPORAL_PORT', uiPort: 'BETTER_COMPUTE_TEMPORAL_UI_PORT' });

function serverArgs({ port, uiPort, metrics, database, searchAttributes, codecEndpoint, settings }) {
  const repeated = (flag, values) => values.flatMap((value) => [flag, value]);
  return [
    'server',
    'start-dev',
    '--ip',
    '127.0.0.1',
    '--port',
    String(port),
    '--ui-port',
    String(uiPort),
    '--metrics-port',
    String(metrics),
    '--db-filename',
    database,
    '--log-level',
    'warn',
    '--ui-disable-news-fetch',
    ...repeated('--sqlite-pragma', pragmas),
    ...repeated('--dynamic-config-value', [...dynamicConfig, ...settings]),
    ...repeated(
      '--search-attribute',
      Object.entries(searchAttributes).map(([name, type]) => `${name}=${type}`),
    ),
    ...(codecEndpoint === undefined ? [] : ['--ui-codec-endpoint', codecEndpoint]),
  ];
}

async function isServing(command, port) {
  const health = await runCommand(
    command,
    ['operator', 'namespace', 'describe', 'default', '--address', `127.0.0.1:${port}`, '--client-connect-timeout', '2s'],
    {
      timeoutMs: 5_000,
      env: { PATH: process.env.PATH ?? '' },
    },
  );
  return health.code === 0;
}

// A keeper that was itself killed leaves its engine behind; only the one with our database on its command line is ours.
async function endEarlier(folder, database) {
  const file = join(folder, 'pid');
  const pid = Number(safely(() => readFileSync(file, 'utf8')) ?? 0);
  await endLeftOver({ pid, mark: database, signal: 'SIGTERM', graceMs: 10_000 });
  rmSync(file, { force: true });
}

function safely(read) {
  try {
    return read();
  } catch {
    return undefined;
  }
}
