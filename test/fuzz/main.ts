/**
 * `npm run fuzz -- [--seconds N] [--seed S] [target …]`: every decoder (or those whose names begin so) under changed inputs, guided by
 * what code they reach. Each target runs in a thread of its own with bounded memory, watched from here: an input that hangs or kills
 * its thread is known, because it was written down before it ran.
 *
 * Exit 1 when a rule was broken; each such input lies in .cache/fuzz then, for test/fuzz/found when it is mended.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { Fault, Figures } from './engine.ts';
import { createTargets } from './targets.ts';

const here = dirname(fileURLToPath(import.meta.url));
const foundFolder = join(here, '../../.cache/fuzz');

/** Nothing may take so long that its thread says nothing for this long. */
const hangMs = 10_000;
/** Of JavaScript's own; our modules, the corpus and V8's coverage take some 60 MiB of it. */
const heapMb = 320;
const largestInput = 8 * 1024 * 1024;

interface Settings {
  readonly seconds: number;
  readonly seed: number;
  readonly names: readonly string[];
}

function settingsOf(args: readonly string[]): Settings {
  const valueOf = (flag: string, byDefault: number): number => {
    const at = args.indexOf(flag);
    if (at < 0) return byDefault;
    const value = Number(args[at + 1]);
    if (Number.isSafeInteger(value) && value > 0) return value;
    throw new Error(`${flag} needs a whole number above 0`);
  };
  const names = args.filter((arg, at) => !arg.startsWith('--') && !['--seconds', '--seed'].includes(args[at - 1] ?? ''));
  return { seconds: valueOf('--seconds', 60), seed: valueOf('--seed', 1 + Math.floor(Math.random() * 2 ** 31)), names };
}

/** Where a thread writes down its input: [0] its length, [1] how many inputs so far. */
const createBoard = (): { counts: Int32Array; bytes: Uint8Array } => {
  const shared = new SharedArrayBuffer(8 + largestInput);
  return { counts: new Int32Array(shared, 0, 2), bytes: new Uint8Array(shared, 8) };
};

function runTarget(name: string, { seconds, seed }: { seconds: number; seed: number }): Promise<Figures> {
  const board = createBoard();
  const lastInput = (): Uint8Array => Uint8Array.from(board.bytes.subarray(0, board.counts[0]));
  return new Promise((resolve) => {
    const worker = new Worker(new URL('./thread.mjs', import.meta.url), {
      workerData: { name, seconds, seed, board: board.counts.buffer },
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: heapMb },
    });
    let seen = -1;
    const end = (kind: Fault['kind'] | null, what: string, figures?: Figures): void => {
      clearInterval(watch);
      void worker.terminate();
      const runs = Math.max(0, board.counts[1] ?? 0);
      const faults = kind === null ? [] : [{ target: name, kind, what, input: lastInput() }];
      resolve(figures ?? { target: name, runs, accepted: 0, corpus: 0, parts: null, faults });
    };
    const watch = setInterval(() => {
      const runs = Atomics.load(board.counts, 1);
      if (runs === seen && runs > 0) end('hang', `no end within ${hangMs} ms`);
      seen = runs;
    }, hangMs);
    worker.on('message', (figures: Figures) => end(null, '', figures));
    worker.on('error', (error) => end('crash', `${error.name}: ${error.message}`));
  });
}

function keep({ target, kind, input }: Fault): string {
  mkdirSync(foundFolder, { recursive: true });
  const path = join(foundFolder, `${target}-${kind}-${createHash('sha256').update(input).digest('hex').slice(0, 12)}.bin`);
  writeFileSync(path, input);
  return path;
}

async function main({ seconds, seed, names }: Settings): Promise<number> {
  const all = (await createTargets()).map(({ name }) => name);
  const chosen = names.length === 0 ? all : all.filter((name) => names.some((one) => name.startsWith(one)));
  if (chosen.length === 0) throw new Error(`no target begins with ${names.join(' or ')}: ${all.join(', ')}`);
  process.stdout.write(`${chosen.length} targets, ${seconds} s, seed ${seed}\n`);
  let faults = 0;
  for (const name of chosen) {
    const figures = await runTarget(name, { seconds: seconds / chosen.length, seed });
    faults += figures.faults.length;
    const { runs, accepted, corpus, parts } = figures;
    process.stdout.write(
      `${figures.faults.length === 0 ? 'holds ' : 'BROKEN'} ${name.padEnd(24)} ${String(runs).padStart(9)} runs ${String(accepted).padStart(8)} accepted ${String(corpus).padStart(5)} kept ${String(parts ?? '-').padStart(5)} parts\n`,
    );
    for (const fault of figures.faults) process.stdout.write(`       ${fault.kind}: ${fault.what}\n       ${keep(fault)}\n`);
  }
  return faults === 0 ? 0 : 1;
}

const help = `usage: npm run fuzz -- [--seconds N] [--seed S] [target ...]

Runs every decoder, or those whose names begin with one of the words, under changed inputs.

  --seconds N  for all targets together (default 60)
  --seed S     the same changes again (default: any)

Exit code 1 when a rule was broken; each such input lies in .cache/fuzz then.
`;

async function run(args: readonly string[]): Promise<number> {
  const unknown = args.find((arg) => arg.startsWith('-') && !['--seconds', '--seed', '--help', '-h'].includes(arg));
  if (unknown !== undefined) throw new Error(`unknown option '${unknown}'\n\n${help}`);
  if (!args.includes('--help') && !args.includes('-h')) return main(settingsOf(args));
  process.stdout.write(`${help}\ntargets:\n${(await createTargets()).map(({ name }) => `  ${name}\n`).join('')}`);
  return 0;
}

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
}
