/**
 * Takes old workflow bundles away: each version of the workflows leaves one of some megabytes. A bundle is read while its worker
 * starts and never again, so one that nobody took for an hour is in nobody's way; the newest stay for the next start, also of
 * another version that runs from the same folder.
 */
import { readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { hour } from '../domain/time.ts';

const bundlesKept = 8;
/** A start takes seconds; a half file of this age belongs to nobody any more. */
const untouchedForMs = hour;
/** A bundle, or half of one with the process that writes it. Anything else in the folder is not ours. */
const ours = /^[0-9a-f]{32}\.js(\.\d+)?$/;

/** Says that this bundle is in use. Best effort, like the pruning: a folder that cannot be written keeps what it has. */
export function touchBundle(codePath: string, nowMs: number): void {
  quietly(() => utimesSync(codePath, nowMs / 1_000, nowMs / 1_000));
}

export function pruneBundles(folder: string, nowMs: number): void {
  quietly(() => {
    const newestFirst = readdirSync(folder)
      .filter((name) => ours.test(name))
      .map((name) => ({ path: join(folder, name), whole: name.endsWith('.js'), at: timeOf(join(folder, name)) }))
      .sort((a, b) => b.at - a.at);
    const kept = new Set(newestFirst.filter(({ whole }) => whole).slice(0, bundlesKept));
    for (const file of newestFirst) {
      if (!kept.has(file) && file.at < nowMs - untouchedForMs) rmSync(file.path, { force: true });
    }
  });
}

/** Gone in this moment, by another worker's hand: as good as new, nobody removes it twice. */
function timeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY;
}

function quietly(work: () => void): void {
  try {
    work();
  } catch {
    // The next start tries again; nothing depends on it.
  }
}
