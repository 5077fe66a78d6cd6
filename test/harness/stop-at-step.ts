/**
 * Stops work before its n-th step on files, as a kill would: the step and everything after it never happens, no `finally` runs. A step is
 * whatever changes the disk or makes a change durable. In this process, because a run of the real program takes a second and there
 * are dozens of steps; a test kills the real program at a few of them too (kill-at-step.mjs).
 */
import fsPromises, { type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

export interface Stopped<T> {
  /** undefined: it was stopped. */
  readonly answer: T | undefined;
  readonly steps: number;
}

type Work = (...args: never[]) => unknown;
const names = ['rename', 'link', 'unlink', 'mkdir', 'rm'] as const;
const fileNames = ['writeFile', 'sync', 'chmod'] as const;

/** @param at the step that is never made; 0: all are made and counted */
export async function stopAtStep<T>(at: number, work: () => Promise<T>): Promise<Stopped<T>> {
  const mutable = fsPromises as unknown as Record<string, Work>;
  const originals = new Map([...names, 'open'].map((name) => [name, mutable[name] as Work]));
  const opened: FileHandle[] = [];
  let steps = 0;
  let stop: () => void;
  const stopped = new Promise<undefined>((resolve) => {
    stop = () => resolve(undefined);
  });
  const step = (): boolean => {
    steps += 1;
    if (steps !== at) return steps < at || at === 0;
    stop();
    return false;
  };
  const counted =
    (original: Work): Work =>
    (...args) =>
      step() ? original(...args) : new Promise(() => undefined);
  for (const name of names) mutable[name] = counted(originals.get(name) as Work);
  mutable['open'] = async (...args: never[]) => {
    const [, flags] = args as unknown as [string, string?];
    if (flags !== undefined && flags !== 'r' && !step()) return new Promise(() => undefined);
    const file = (await (originals.get('open') as Work)(...args)) as FileHandle;
    opened.push(file);
    for (const name of fileNames) {
      const original = (file[name] as Work).bind(file);
      Object.assign(file, { [name]: counted(original) });
    }
    return file;
  };
  syncBuiltinESMExports();
  try {
    return { answer: await Promise.race([work(), stopped]), steps };
  } finally {
    for (const [name, original] of originals) mutable[name] = original;
    syncBuiltinESMExports();
    await Promise.allSettled(opened.map((file) => file.close()));
  }
}
