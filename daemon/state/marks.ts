/**
 * The few numbers that only ever go up, and must not forget it over a restart: the highest session epoch seen (a gateway that
 * was replaced cannot deliver any more), and the time floor (what signed statements and the journal prove about the time).
 */
import { join } from 'node:path';
import { z } from 'zod';
import { readJsonFile, writeJsonFile } from './json-file.ts';

export interface Marks {
  readonly epoch: bigint;
  readonly timeFloorMs: number;
}

export interface MarksStore {
  readonly current: Marks;
  /** Durable when it returns; a lower value changes nothing. */
  raise(marks: Partial<Marks>): Promise<void>;
}

const schema = z.object({
  epoch: z
    .string()
    .regex(/^\d{1,20}$/)
    .transform(BigInt),
  timeFloorMs: z.number().int().nonnegative(),
});

/** The higher of each. */
export function raisedMarks(current: Marks, by: Partial<Marks>): Marks {
  const epoch = by.epoch !== undefined && by.epoch > current.epoch ? by.epoch : current.epoch;
  return { epoch, timeFloorMs: Math.max(current.timeFloorMs, by.timeFloorMs ?? 0) };
}

/** @throws DATA_CORRUPT when the file does not read back */
export async function openMarks(folder: string): Promise<MarksStore> {
  const path = join(folder, 'marks.json');
  let current: Marks = (await readJsonFile(path, schema, 4096)) ?? { epoch: 0n, timeFloorMs: 0 };
  let work: Promise<void> = Promise.resolve();
  return {
    get current() {
      return current;
    },
    raise(by) {
      const done = work.then(async () => {
        const next = raisedMarks(current, by);
        if (next.epoch === current.epoch && next.timeFloorMs === current.timeFloorMs) return;
        await writeJsonFile(path, next);
        current = next;
      });
      work = done.catch(() => undefined);
      return done;
    },
  };
}
