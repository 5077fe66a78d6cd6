/** The programs that people use, run as people run them: `better-compute` and `temporal`, each a process of its own. */
import { spawn } from 'node:child_process';
import { ControlError } from '../../../../domain/errors.ts';
import { minute } from '../../../../domain/time.ts';
import { findTemporal } from '../../../../scripts/engines/temporal.mjs';
import { entryOf } from '../../entries.ts';
import type { Stack } from '../../stack.ts';

const entry = entryOf('cli/main');
const longestRunMs = 2 * minute;

/** @returns what it wrote to standard output; @throws UNAVAILABLE with its last words when it fails */
export function runOurs(stack: Stack, args: readonly string[]): Promise<string> {
  const env = { BETTER_COMPUTE_HOME: stack.home.root, BETTER_COMPUTE_TRUST_DOMAIN: stack.facts.trustDomain };
  return run({ name: 'better-compute', file: process.execPath, env }, [...entry.args, ...args]);
}

export async function runTemporal(stack: Stack, args: readonly string[]): Promise<string> {
  const env = { TEMPORAL_CONFIG_FILE: stack.home.temporalProfile };
  return run({ name: 'temporal', file: await findTemporal(), env }, args);
}

interface Program {
  readonly name: string;
  readonly file: string;
  readonly env: Readonly<Record<string, string>>;
}

async function run({ name, file, env }: Program, args: readonly string[]): Promise<string> {
  const { PATH, HOME } = process.env;
  const child = spawn(file, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...(PATH === undefined ? {} : { PATH }), ...(HOME === undefined ? {} : { HOME }), ...env },
    timeout: longestRunMs,
  });
  let [out, err] = ['', ''];
  child.stdout.on('data', (data: Buffer) => void (out += data.toString()));
  child.stderr.on('data', (data: Buffer) => void (err += data.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  if (code === 0) return out;
  const why = err.trim().split('\n').slice(-4).join(' | ');
  throw new ControlError(
    'UNAVAILABLE',
    `${name} ${args
      .filter((arg) => !arg.startsWith('/'))
      .slice(0, 4)
      .join(' ')} failed (${code}): ${why}`,
    {
      details: { reason: 'program-failed', program: name },
    },
  );
}
