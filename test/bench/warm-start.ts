/** From `start` to ready with everything made before: the time a person waits, beside that of the two engines alone. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Figure } from './gateway-load.ts';

const goalSeconds = 10;
const marker = /^up after ([\d.]+) s/;
const run = fileURLToPath(new URL(`${import.meta.url.includes('/dist/') ? '../../../' : '../../'}scripts/run.mjs`, import.meta.url));

/** Starts the stack, reads how long it says it took, and ends it again. */
async function startOnce(home: string): Promise<number> {
  const free = Object.fromEntries(['API', 'INTERNAL', 'GATEWAY', 'METRICS'].map((name) => [`BETTER_COMPUTE_${name}_PORT`, '0']));
  const child = spawn(process.execPath, [run, 'cli/main', 'start'], {
    env: { ...process.env, ...free, BETTER_COMPUTE_HOME: home },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  try {
    return await new Promise<number>((resolve, reject) => {
      const read = (line: string): void => {
        const seconds = marker.exec(line)?.[1];
        if (seconds !== undefined) resolve(Number(seconds));
      };
      for (const stream of [child.stdout, child.stderr]) createInterface({ input: stream }).on('line', read);
      void ended.then(([code]) => reject(new Error(`the stack ended with ${code} before it was up`)));
    });
  } finally {
    child.kill('SIGINT');
    await ended;
  }
}

export async function figure(): Promise<Figure> {
  const home = mkdtempSync(join(tmpdir(), 'bc-warm-'));
  try {
    const cold = await startOnce(home);
    const warm = [await startOnce(home), await startOnce(home)];
    const best = Math.min(...warm);
    return {
      figure: 'warm-start',
      ratio: best,
      goal: `≤ ${goalSeconds} s`,
      holds: best <= goalSeconds,
      detail: { coldSeconds: cold, warmSeconds: warm.join(', '), warmOfCold: Number((best / cold).toFixed(2)) },
    };
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}
