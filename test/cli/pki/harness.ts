/** One run of a `pki` command line in this process: its own folder, environment, clock, and a deployment of given facts. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { createPkiPorts, type Deployment, type PkiPorts } from '../../../cli/commands/pki/deployment.ts';
import { register } from '../../../cli/commands/pki/index.ts';
import { toExit, writeExit } from '../../../cli/exit.ts';
import type { CliIo } from '../../../cli/io.ts';
import { createPorts } from '../../../cli/ports.ts';
import { openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { now, secret } from '../../pki/support.ts';

export interface Run {
  readonly exitCode: number;
  readonly out: string;
  readonly err: string;
}

export interface Bench {
  readonly folder: string;
  readonly env: NodeJS.ProcessEnv;
  /** Moves the clock. */
  at(ms: number): void;
  now(): number;
  deployment: Deployment | null;
  run(...argv: string[]): Promise<Run>;
  path(name: string): string;
  /** The bundle file, opened with the secret of the environment. */
  bundle(): PkiBundle;
  close(): void;
}

export function createBench(): Bench {
  const folder = mkdtempSync(join(tmpdir(), 'pki-cli-'));
  const env: NodeJS.ProcessEnv = { BETTER_COMPUTE_HOME: folder, BETTER_COMPUTE_SECRET: secret };
  let time = now;
  const bench: Bench = {
    folder,
    env,
    at: (ms) => {
      time = ms;
    },
    now: () => time,
    deployment: null,
    run: async (...argv) => runOnce(argv, { env, now: () => time, deployment: () => bench.deployment }),
    path: (name) => join(folder, name),
    bundle: () => openBundle(readFileSync(join(folder, 'pki.json'), 'utf8'), { secret }),
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
  return bench;
}

interface World {
  readonly env: NodeJS.ProcessEnv;
  now(): number;
  deployment(): Deployment | null;
}

async function runOnce(argv: readonly string[], world: World): Promise<Run> {
  const written = { out: '', err: '' };
  const line = (text: string): string => (text.endsWith('\n') ? text : `${text}\n`);
  const io: CliIo = {
    out: (text) => void (written.out += line(text)),
    err: (text) => void (written.err += line(text)),
    env: world.env,
    now: world.now,
    isTerminal: false,
    signal: new AbortController().signal,
    user: () => 'ada',
    readInput: async () => null,
    confirm: async () => false,
    sleep: async () => undefined,
  };
  const real = createPkiPorts(createPorts(io));
  // A database that the environment names is asked for real.
  const ports: PkiPorts = { ...real, deployment: async () => world.deployment() ?? real.deployment() };
  const program = new Command('better-compute').option('--json', 'write data as JSON on standard output');
  register(program, io, ports);
  settle(program, io);
  try {
    await program.parseAsync(argv, { from: 'user' });
    return { exitCode: 0, ...written };
  } catch (error) {
    const exitCode = writeExit(io, toExit(error), argv.includes('--json'));
    return { exitCode, ...written };
  }
}

function settle(command: Command, io: CliIo): void {
  command
    .exitOverride()
    .allowExcessArguments(false)
    .configureOutput({ writeOut: (text) => io.out(text), writeErr: (text) => io.err(text), outputError: () => undefined });
  for (const child of command.commands) settle(child, io);
}

/** The longest flags of a command, without --help. */
export function flagsOf(help: string): string[] {
  return [...help.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)].map(([, flag]) => flag as string).filter((flag) => flag !== '--help');
}
