/** One target in a thread: writes every input down before it runs it, and answers with what it found. */
import { parentPort, workerData } from 'node:worker_threads';
import { openCoverage } from './coverage.ts';
import { fuzz } from './engine.ts';
import { createTargets } from './targets.ts';

const { name, seconds, seed, board } = workerData as { name: string; seconds: number; seed: number; board: SharedArrayBuffer };
const counts = new Int32Array(board, 0, 2);
const bytes = new Uint8Array(board, 8);

const target = (await createTargets()).find((one) => one.name === name);
if (target === undefined) throw new Error(`there is no target ${name}`);
const endsAt = performance.now() + seconds * 1_000;
const figures = fuzz(target, {
  seed,
  coverage: openCoverage(),
  goesOn: () => performance.now() < endsAt,
  onInput: (input) => {
    bytes.set(input.subarray(0, bytes.length));
    counts[0] = Math.min(input.length, bytes.length);
    Atomics.add(counts, 1, 1);
  },
});
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
parentPort?.postMessage(figures);
