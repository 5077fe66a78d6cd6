/** How far a wipe is, in bytes over all disks: said now and then, and whenever a disk ends. */
import { type EraseMethod, eraseMethods } from '../../../domain/metal/erase.ts';
import { second } from '../../../domain/time.ts';
import type { KindContext } from '../../kinds/handler.ts';
import type { DiskFacts } from '../disks/disk-host.ts';

export const progressEveryMs = 2 * second;

export interface WipeProgress {
  bytes(disk: DiskFacts, at: { done: number; method: EraseMethod }): void;
  ended(disk: DiskFacts): void;
}

/** The total counts the passes of an overwrite; a drive that erases itself says nothing until it ends, and is whole then. */
export function createWipeProgress(disks: readonly DiskFacts[], { progress, now }: Pick<KindContext, 'progress' | 'now'>): WipeProgress {
  const passes = eraseMethods['overwrite-random-zero'].passes;
  const total = disks.reduce((sum, { sizeBytes }) => sum + sizeBytes * passes, 0);
  const done = new Map<DiskFacts, number>();
  const ended = new Set<DiskFacts>();
  let saidAtMs = Number.NEGATIVE_INFINITY;
  const say = (note: string): void => {
    saidAtMs = now();
    progress({ done: [...done.values()].reduce((sum, one) => sum + one, 0), total, note });
  };
  const status = (): string => `${ended.size} of ${disks.length} disks done`;
  return {
    bytes(disk, at) {
      done.set(disk, at.done);
      if (now() - saidAtMs >= progressEveryMs) say(`${disk.name}: ${at.method}; ${status()}`);
    },
    ended(disk) {
      ended.add(disk);
      done.set(disk, disk.sizeBytes * passes);
      say(status());
    },
  };
}
