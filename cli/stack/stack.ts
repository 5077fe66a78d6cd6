/**
 * The whole control plane on one machine: engines, keys, processes, in order, and in the opposite order at the end.
 *
 * Invariants: one stack a state folder (stack.lock names its pid); what was made once is found again at the next start; a
 * failed start leaves nothing running; a process that ends by itself is started again; addresses stand in run/stack.json while
 * the stack runs, for `better-compute` and people, and are gone afterwards.
 *
 * What it does not do: more than one of each process, or more than one machine. A larger deployment runs the same programs
 * under its own supervisor.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import { createDatabase } from '../../drizzle/client.ts';
import { migrate } from '../../drizzle/migrate.ts';
import { replaceWhole } from '../../runtime/bundle-file-store.ts';
import { tryLock } from '../../scripts/lib/lock.mjs';
import { type Child, startChild } from './child-process.ts';
import { startDatabase, startLocalTemporal } from './engines.ts';
import { entryOf } from './entries.ts';
import { prepareHome, type StackHome, stackHome } from './home.ts';
import { type Materials, prepareMaterials } from './materials.ts';
import { choosePorts, type Ports } from './ports.ts';
import {
  codecUrl,
  gatewayUrl,
  type ProcessName,
  type ProcessRow,
  processEnv,
  processTable,
  type StackFacts,
  speaksSsh,
} from './processes.ts';
import { writeTlsFiles } from './tls-files.ts';

export interface StackOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly now: () => number;
  /** A line of progress. */
  readonly say: (line: string) => void;
  /** Checked between steps: a start that was given up stops what it has started. */
  readonly signal: AbortSignal;
}

export interface Stack {
  readonly home: StackHome;
  /** Name → host:port or URL, as in run/stack.json. */
  readonly addresses: Readonly<Record<string, string>>;
  readonly facts: StackFacts;
  /** Of the process that runs now; 0 between two. */
  pidOf(name: ProcessName): number;
  stop(): Promise<void>;
}

/** @throws INVALID_STATE when the state folder's stack is running; PORT_TAKEN; UNAVAILABLE naming the process that did not start */
export async function startStack(options: StackOptions): Promise<Stack> {
  const home = stackHome(options.env);
  prepareHome(home);
  const lock = tryLock(home.lock);
  if (lock.kind === 'held') {
    throw new ControlError('INVALID_STATE', `a stack of ${home.root} is running already (pid ${lock.pid})`, {
      details: {
        reason: 'stack-running',
        hint: `end it with Ctrl-C or kill ${lock.pid}, or set BETTER_COMPUTE_HOME to another folder`,
        pid: lock.pid,
      },
    });
  }
  const undo: (() => Promise<void> | void)[] = [() => lock.release()];
  const stop = once(async () => {
    for (const step of undo.toReversed()) await step();
  });
  try {
    return { home, ...(await startAll(home, options, undo)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Undo = (() => Promise<void> | void)[];

async function startAll(home: StackHome, options: StackOptions, undo: Undo): Promise<Pick<Stack, 'addresses' | 'facts' | 'pidOf'>> {
  const { env, say, now, signal } = options;
  const trustDomain = env['BETTER_COMPUTE_TRUST_DOMAIN'] || 'better-compute.local';
  const { ports, release } = await choosePorts(env, home.ports);
  undo.push(release);
  const materials = await prepareMaterials({ home, env, trustDomain, now: now() });
  if (materials.made.length > 0) say(`made: ${materials.made.join(', ')} (in ${home.root})`);
  await keepTlsFiles({ home, materials, options, undo });
  signal.throwIfAborted();
  const codec = codecUrl(env, ports);
  const [database, temporal] = await both(
    startDatabase({ home, env, ports, say }).then(({ url, engine }) => {
      undo.push(async () => engine?.stop());
      return { url, ours: engine !== null };
    }),
    startLocalTemporal({ home, env, ports, say }, codec).then((started) => {
      undo.push(async () => started.engine?.stop());
      return started;
    }),
  );
  signal.throwIfAborted();
  await migrateDatabase(database.url, say);
  const facts: StackFacts = {
    home,
    env,
    ports,
    databaseUrl: database.url,
    temporalAddress: temporal.address,
    temporalUiUrl: temporal.uiUrl,
    secret: materials.secret,
    trustDomain: materials.bundle.trustDomain,
  };
  const pidOf = await startProcesses(facts, options, undo);
  const addresses = addressesOf({ ports, temporal, databaseUrl: database.url });
  await replaceWhole(home.temporalProfile, temporalProfile(temporal.address, codec));
  const runFile = join(home.run, 'stack.json');
  await replaceWhole(runFile, `${JSON.stringify({ pid: process.pid, addresses }, null, 2)}\n`);
  undo.push(() => rmSync(runFile, { force: true }));
  return { addresses, facts, pidOf };
}

/** The api first (it publishes the trust bundle and answers joins), then what depends on it; the other way round at the end. */
async function startProcesses(facts: StackFacts, { say, signal }: StackOptions, undo: Undo): Promise<Stack['pidOf']> {
  const all = new Map<ProcessName, Child>();
  const others: ProcessName[] = [
    'worker-signing',
    'worker-control',
    'gateway',
    ...(speaksSsh(facts.env) ? (['worker-hosts'] as const) : []),
  ];
  for (const names of [['api'] as ProcessName[], others]) {
    const running: Child[] = [];
    undo.push(async () => void (await Promise.all(running.map((child) => child.stop()))));
    const start = async (name: ProcessName): Promise<void> => {
      const { entry: path, nodeFlags = [] }: ProcessRow = processTable[name];
      const entry = entryOf(path, nodeFlags);
      const logFile = join(facts.home.logs, `${name}.log`);
      const child = await startChild({ name, entry, args: [], env: processEnv(name, facts), logFile }, { say });
      running.push(child);
      all.set(name, child);
    };
    await both(...names.map(start));
    signal.throwIfAborted();
  }
  return (name) => all.get(name)?.pid() ?? 0;
}

/** Waits for all, so that what did start is known when one fails. */
async function both<T extends readonly unknown[]>(...work: { [K in keyof T]: Promise<T[K]> }): Promise<T> {
  const results = await Promise.allSettled(work);
  const failed = results.find((result) => result.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  return results.map((result) => (result as PromiseFulfilledResult<unknown>).value) as unknown as T;
}

async function migrateDatabase(url: string, say: (line: string) => void): Promise<void> {
  const database = createDatabase(url, { applicationName: 'better-compute start', max: 1 });
  try {
    const applied = await migrate(database.pool);
    if (applied.length > 0) say(`database: ${applied.length} migration${applied.length === 1 ? '' : 's'} applied`);
  } finally {
    await database.close();
  }
}

/** For `TEMPORAL_CONFIG_FILE=… temporal …`: the address, and where payloads are decoded. */
const temporalProfile = (address: string, codec: string | undefined): string =>
  `[profile.default]\naddress = "${address}"\nnamespace = "default"\n${codec === undefined ? '' : `\n[profile.default.codec]\nendpoint = "${codec}"\n`}`;

interface TlsKeeping {
  readonly home: StackHome;
  readonly materials: Materials;
  readonly options: StackOptions;
  readonly undo: Undo;
}

/** Leaves are renewed while the stack runs; processes read new files by themselves. */
async function keepTlsFiles({ home, materials, options: { env, now, say }, undo }: TlsKeeping): Promise<void> {
  const name = env['BETTER_COMPUTE_GATEWAY_NAME'];
  const names = { dns: ['localhost', ...(name ? [name] : [])], ips: ['127.0.0.1'] };
  const write = (): Promise<string[]> => writeTlsFiles(home.tls, { bundle: materials.bundle, names, now: now() });
  await write();
  const timer = setInterval(() => {
    void write().then(
      (files) => files.length > 0 && say(`renewed: ${files.join(', ')}`),
      (error: unknown) => say(`TLS files were not renewed: ${error instanceof Error ? error.message : String(error)}`),
    );
  }, hour);
  timer.unref();
  undo.push(() => clearInterval(timer));
}

function addressesOf({
  ports,
  temporal,
  databaseUrl,
}: {
  ports: Ports;
  temporal: { address: string; uiUrl: string | null };
  databaseUrl: string;
}): Record<string, string> {
  const on = (port: number): string => `127.0.0.1:${port}`;
  return {
    api: `http://${on(ports.api)}`,
    gateway: gatewayUrl(ports),
    temporal: temporal.address,
    ...(temporal.uiUrl === null ? {} : { temporalUi: temporal.uiUrl }),
    database: databaseUrl,
    apiMetrics: on(ports.apiMetrics),
    gatewayMetrics: on(ports.gatewayMetrics),
    controlMetrics: on(ports.controlMetrics),
    signingMetrics: on(ports.signingMetrics),
  };
}

function once(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  return () => (running ??= work());
}
