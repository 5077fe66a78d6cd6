/**
 * The whole stack as a person starts it, with real daemons beside it, for tests that hurt it: engines, control plane and daemons are
 * processes that can be killed, stopped and started again one by one.
 */
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Client } from '@temporalio/client';
import { createOperatorClient, type OperatorClient } from '../../cli/api-client.ts';
import { createMachineClient, type MachineClient } from '../../cli/machines/client.ts';
import type { RotationPort } from '../../cli/rotation-port.ts';
import { createSettings } from '../../cli/settings.ts';
import { connectTemporal } from '../../cli/temporal.ts';
import { createRotationPort } from '../../cli/temporal-rotation.ts';
import { getIdentity, saveIdentity } from '../../daemon/state/identity.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { demonstrationTimesName } from '../../runtime/config.ts';
import { findTemporal } from '../../scripts/engines/temporal.mjs';
import { type Bcd, startBcd } from '../daemon/bcd-process.ts';
import { eventually } from './eventually.ts';
import { projectRoot } from './imports.ts';
import { freePorts, nothingLeftOf, processesOf, runStart, type StartedProgram, stateFolder } from './run-start.ts';

export interface Times {
  readonly overlapMs: number;
  readonly marginMs: number;
  readonly workerLifetimeMs: number;
}

/** What can be killed: how it is found among the processes of a state folder, and what the stack calls it. */
const victims = {
  api: { command: /api\/main\.[jt]s/, name: 'api' },
  gateway: { command: /gateway\/main\.[jt]s/, name: 'gateway' },
  control: { command: /workers\/control\.[jt]s/, name: 'worker-control' },
  signing: { command: /workers\/signing\.[jt]s/, name: 'worker-signing' },
  temporal: { command: /^\S*temporal server start-dev/, name: 'Temporal' },
  postgres: { command: /^\S*postgres -D/, name: 'PostgreSQL' },
} as const;

export type Victim = keyof typeof victims;
export const everyVictim = Object.freeze(Object.keys(victims) as Victim[]);

export interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export interface LiveStack {
  readonly home: string;
  /** The `better-compute start` that runs now. */
  program(): StartedProgram;
  readonly api: OperatorClient;
  readonly machinesApi: MachineClient;
  readonly client: Client;
  readonly rotation: Omit<RotationPort, 'close'>;
  readonly db: Database;
  readonly address: (name: string) => string;
  secret(): string;
  pidOf(victim: Victim): number;
  /** SIGKILL, and back: the stack starts what ended by itself. */
  kill(victim: Victim): Promise<void>;
  /** Everything down in order and up again, with more environment. */
  restart(env?: NodeJS.ProcessEnv): Promise<void>;
  /** The Temporal CLI with the stack's own profile. */
  temporal(...args: string[]): Promise<Answer>;
  betterCompute(...args: string[]): Promise<Answer>;
  /** The same with more environment. */
  betterComputeWith(env: NodeJS.ProcessEnv, ...args: string[]): Promise<Answer>;
  daemon(name: string): LiveDaemon;
  stop(): Promise<void>;
}

export interface LiveDaemon {
  readonly name: string;
  readonly folder: string;
  join(joinString: string, ...flags: string[]): Promise<Answer>;
  /** Joins if it has not, runs, and waits until it is connected. */
  start(): Promise<Bcd>;
  /** Runs and does not wait. */
  run(): Bcd;
  signal(name: NodeJS.Signals): void;
  kill(): Promise<void>;
  stop(): Promise<void>;
  untilConnected(): Promise<void>;
  /** From its next start on, it dials this gateway. */
  dial(gatewayUrl: string): Promise<void>;
  /** What all its runs have said so far. */
  log(): string;
  /** Units that systemctl was told to restart, in order: the effects of service.restart on this machine. */
  effects(): string[];
}

const upWithinMs = 180_000;
const up = /^the next rotation, in any of these ways:/;
/** Units that a test's commands may restart. */
const allowedUnits = Array.from({ length: 2_000 }, (_, i) => `work-${i + 1}.service`);

/** @param more environment of the program */
export async function startLiveStack(times: Times, more: NodeJS.ProcessEnv = {}): Promise<LiveStack> {
  const home = stateFolder();
  const base = {
    ...freePorts,
    ...more,
    BETTER_COMPUTE_HOME: home,
    [demonstrationTimesName]: `yes-for-demonstrations-only:${times.overlapMs},${times.marginMs},${times.workerLifetimeMs}`,
  };
  let program = runStart([], base);
  try {
    await program.untilSaid(up, upWithinMs);
    const settings = createSettings({ BETTER_COMPUTE_HOME: home });
    const session = await connectTemporal(settings.temporalEnv());
    const db = createDatabase(settings.databaseUrl() ?? '', { applicationName: 'test' });
    const api = createOperatorClient(settings);
    const daemons = new Map<string, LiveDaemon>();
    const backCount = (name: string): number => program.said().split(`\n${name} is back (`).length;
    const cli = await findTemporal();
    return {
      home,
      api,
      machinesApi: createMachineClient(settings),
      db,
      client: session.client,
      rotation: createRotationPort(session.client),
      program: () => program,
      address: (name) => addressesOf(home)[name] ?? '',
      secret: () => settings.secret() ?? '',
      pidOf: (victim) => pidOf(home, victim),
      async kill(victim) {
        const { name } = victims[victim];
        const before = backCount(name);
        process.kill(pidOf(home, victim), 'SIGKILL');
        await eventually(`${name} is back`, () => backCount(name) > before, upWithinMs);
      },
      async restart(env = {}) {
        program.kill('SIGINT');
        await program.ended;
        program = runStart([], { ...base, ...env });
        await program.untilSaid(up, upWithinMs);
      },
      temporal: (...args) => answerOf(cli, args, { TEMPORAL_CONFIG_FILE: join(home, 'temporal.toml') }),
      betterCompute: (...args) => runOurs(args, { BETTER_COMPUTE_HOME: home }),
      betterComputeWith: (env, ...args) => runOurs(args, { BETTER_COMPUTE_HOME: home, ...env }),
      daemon: (name) => {
        const known = daemons.get(name) ?? newDaemon({ name, home, api, overlapMs: times.overlapMs });
        daemons.set(name, known);
        return known;
      },
      async stop() {
        await Promise.all([...daemons.values()].map((daemon) => daemon.kill()));
        await session.close();
        await db.close();
        program.kill('SIGINT');
        await program.ended;
        await nothingLeftOf(home);
      },
    };
  } catch (error) {
    program.kill('SIGKILL');
    await program.ended;
    throw error;
  }
}

const addressesOf = (home: string): Record<string, string> =>
  (JSON.parse(readFileSync(join(home, 'run', 'stack.json'), 'utf8')) as { addresses: Record<string, string> }).addresses;

function pidOf(home: string, victim: Victim): number {
  const { command, name } = victims[victim];
  const found = processesOf(home).find((one) => command.test(one.command));
  if (found === undefined) throw new Error(`${name} does not run`);
  return found.pid;
}

/** A process and what it has started, by the process table: signals for an engine that is several processes. */
export function familyOf(pid: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name): [number, number] => [Number(name), parentOf(name)]);
  const children = parents.filter(([, parent]) => parent === pid).map(([child]) => child);
  return [pid, ...children.flatMap(familyOf)];
}

function parentOf(pid: string): number {
  try {
    const stat = readFileSync(join('/proc', pid, 'stat'), 'utf8');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return 0;
  }
}

/** Never as a blocking call: what it asks may be answered by a process that this one keeps alive. */
function answerOf(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Answer> {
  const basics = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '' };
  return new Promise((resolve) => {
    execFile(command, args, { cwd: projectRoot, env: { ...basics, ...env }, maxBuffer: 16 * 1024 * 1024 }, (error, out, err) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
      resolve({ code, out, err });
    });
  });
}

const runOurs = (args: readonly string[], env: NodeJS.ProcessEnv): Promise<Answer> =>
  answerOf(process.execPath, ['scripts/run.mjs', 'cli/main', ...args], env);

interface NewDaemon {
  readonly name: string;
  readonly home: string;
  readonly api: OperatorClient;
  readonly overlapMs: number;
}

function newDaemon({ name, home, api, overlapMs }: NewDaemon): LiveDaemon {
  const folder = join(home, 'nodes', name);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ restartableUnits: allowedUnits }), { mode: 0o600 });
  const machine = newMachine(join(home, 'machines', name));
  let running: Bcd | undefined;
  let said = '';
  const joinWith = async (joinString: string, ...flags: string[]): Promise<Answer> => {
    const end = await startBcd(['join', '-', '--data-dir', folder, ...flags], { input: joinString }).ended;
    return { code: end.code ?? 1, out: end.stdout, err: end.stderr };
  };
  const run = (): Bcd => {
    const args = ['run', '--data-dir', folder, '--simulate-reboot', '--demonstration-only-root-overlap-ms', String(overlapMs)];
    running = startBcd(args, { env: { PATH: `${machine.path}:${process.env['PATH'] ?? ''}` } });
    return running;
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    running?.child.kill('SIGCONT');
    await running?.stop(signal);
    said += running?.log() ?? '';
    running = undefined;
  };
  const untilConnected = async (): Promise<void> => {
    await eventually(
      `${name} connected`,
      async () => {
        if (running !== undefined && running.child.exitCode !== null) throw new Error(`bcd ${name} ended: ${running.log()}`);
        const status = await findStatus(folder);
        return status?.state === 'connected' && status.pid === running?.child.pid;
      },
      60_000,
    );
  };
  let joined = false;
  return {
    name,
    folder,
    run,
    join: joinWith,
    untilConnected,
    async start() {
      if (!joined) {
        const { join: joinString } = await api.createToken({ nodeId: name, actor: 'test', lifetimeMs: 600_000 });
        const answer = await joinWith(joinString ?? '');
        if (answer.code !== 0) throw new Error(`bcd join of ${name}: ${answer.err}`);
        joined = true;
      }
      const bcd = run();
      await untilConnected();
      return bcd;
    },
    signal: (signal) => void running?.child.kill(signal),
    kill: () => end('SIGKILL'),
    stop: () => end('SIGTERM'),
    log: () => said + (running?.log() ?? ''),
    async dial(gatewayUrl) {
      const { identity, key } = await getIdentity(folder);
      await saveIdentity(folder, { key, identity: { ...identity, gatewayUrl } });
    },
    effects: machine.effects,
  };
}

/** A machine whose systemctl writes down what it is told to restart. */
function newMachine(path: string): { readonly path: string; effects(): string[] } {
  mkdirSync(path, { recursive: true });
  const log = join(path, 'restarts.log');
  writeFileSync(log, '');
  const script = join(path, 'systemctl');
  writeFileSync(script, `#!/bin/sh\nif [ "$1" = restart ]; then echo "$3" >> '${log}'; else echo active; fi\n`);
  chmodSync(script, 0o755);
  return { path, effects: () => readFileSync(log, 'utf8').split('\n').filter(Boolean) };
}
