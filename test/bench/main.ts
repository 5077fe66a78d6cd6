/**
 * `npm run bench -- [name …] [--json]`: each figure is a ratio against a bare baseline that runs beside it in the same process
 * tree, with the machine's particulars. Without a name: all of them, one after another. Exit 1 when a figure misses its goal.
 *
 * Never a test: machines differ, so no time is asserted anywhere else.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { ControlError } from '../../domain/errors.ts';

export interface Figure {
  readonly figure: string;
  readonly ratio: number;
  /** What the goal is about, where that is not the ratio: "36.4 ms". */
  readonly measured?: string;
  /** As people write it: "≤ 1.15". */
  readonly goal: string | number;
  readonly holds: boolean;
  readonly detail: unknown;
}

/** Name → what it measures. The module of that name exports figure(). */
const figures: Readonly<Record<string, string>> = Object.freeze({
  'gateway-memory': 'memory of an idle mTLS session, of bare node:http2 (goal: at most)',
  'gateway-rtt': 'CPU of a small frame there and back, of bare node:http2 (goal: at most)',
  storm: 'p99 in ms of live sessions while 2,000 arrive (goal: at most)',
  enqueue: 'commands appended a second, of a bare counter insert (goal: at least)',
  'batch-release': 'commands of an approved batch released a second, of as many bare signed inserts (goal: at least)',
  deliver: 'commands read a second, of a bare cursor read (goal: at least)',
  issue: 'certificates a second, of raw P-256 signatures (goal: at least)',
  renew: 'renewals a second, of the raw signature and verifications they need (goal: at least)',
  verify: 'time of a chain, of the raw verifications it needs (goal: at most)',
  seal: 'time to open a sealed bundle, of its own cryptography (goal: at most)',
  ssh: 'SSH certificates a second, of raw Ed25519 sign and verify (goal: at least)',
  jwt: 'tokens made and verified a second, of raw sign and verify (goal: at least)',
  batch: 'time of a scope of 50,000 with all proofs, of bare hashing; and of a machine’s verdict, of raw ECDSA (goal: at most)',
  'batch-approver': 'CPU of an approver that recomputes a scope of 50,000 from the api, of bare hashing; and its memory (goal: at most)',
  'metal-inventory': 'time of the inventory of a controller with 3,061 resources, of the bare requests it needs (goal: at most)',
  'metal-fleet': 'CPU of the control plane and history events for each of 200 machines provisioned at once (goal: at most)',
  gate: 'ms of the fleet gate at 100,000 sessions (goal: at most)',
  'rotation-history': 'history events of a rotation over 2,000 sessions (goal: at most)',
  orchestration: 'time of our workflow, of a bare Temporal loop (goal: at most)',
  'metal-image': 'rate of an image written with its checksum, of dd and sha256sum over the same bytes (goal: at least)',
  'warm-start': 'seconds from a warm start to ready (goal: at most)',
});

const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';

async function measure(name: string): Promise<Figure> {
  const url = new URL(`./${name}.${ending}`, import.meta.url);
  if (!Object.hasOwn(figures, name) || !existsSync(url)) {
    throw new ControlError('INVALID_INPUT', `there is no figure ${name}: ${Object.keys(figures).join(', ')}`);
  }
  const module = (await import(url.href)) as { figure: () => Promise<Figure> };
  return module.figure();
}

function machine(): Record<string, string | number> {
  const commit = (() => {
    try {
      return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
    } catch {
      return 'unknown';
    }
  })();
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    commit,
  };
}

const shown = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toFixed(2));

async function main(args: readonly string[]): Promise<number> {
  const isJson = args.includes('--json');
  const wanted = args.filter((arg) => !arg.startsWith('--'));
  const all = Object.keys(figures);
  // `metal` is all of its kind.
  const named = wanted.flatMap((word) => (Object.hasOwn(figures, word) ? [word] : all.filter((name) => name.startsWith(`${word}-`))));
  const unknown = wanted.filter((word) => !all.some((name) => name === word || name.startsWith(`${word}-`)));
  const names = wanted.length > 0 ? [...named, ...unknown] : all;
  if (isJson) process.stdout.write(`${JSON.stringify({ machine: machine() })}\n`);
  else
    process.stdout.write(
      `${Object.entries(machine())
        .map(([key, value]) => `${key} ${value}`)
        .join(' · ')}\n\n`,
    );
  let missed = 0;
  for (const name of names) {
    const figure = await measure(name);
    if (!figure.holds) missed += 1;
    if (isJson) process.stdout.write(`${JSON.stringify(figure)}\n`);
    else {
      const verdict = figure.holds ? 'holds ' : 'MISSED';
      process.stdout.write(
        `${verdict} ${name.padEnd(17)} ${(figure.measured ?? shown(figure.ratio)).padStart(9)}  goal ${String(figure.goal).padStart(7)}  ${figures[name] ?? ''}\n`,
      );
    }
  }
  return missed === 0 ? 0 : 1;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = error instanceof ControlError && error.code === 'INVALID_INPUT' ? 2 : 70;
}
