/**
 * What proves an erasure: ranges that are read before and after. Which ones is random, so that no drive can prepare for it; the first
 * and the last range of the disk are always among them, because partition tables lie there.
 *
 * A range that holds nothing but zeros would look erased whatever the method did (M50: a format that erases nothing). Such a range gets
 * a random mark first; a mark that is still there afterwards convicts the method.
 */
import { createHash } from 'node:crypto';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { type EraseMethod, isAllZero, judgeSample } from '../../../domain/metal/erase.ts';
import type { SampledRangeSchema } from '../../../proto/index.ts';
import type { DiskFacts, DiskHandle, DiskHost } from '../disks/disk-host.ts';

export interface SampleRange {
  readonly offset: number;
  readonly length: number;
}

/** `before` is undefined where the range could neither be read nor marked. */
export interface TakenSample extends SampleRange {
  readonly before: Buffer | undefined;
}

export const sampleBounds = Object.freeze({ default: 64, max: 512, bytes: 4096 });

/** One range in each of `count` equal parts of the disk, at a random place; the first and the last one fixed. */
export function sampleRanges(disk: DiskFacts, count: number, random: (length: number) => Uint8Array): SampleRange[] {
  const length = Math.max(sampleBounds.bytes, disk.logicalBlockBytes);
  const slots = Math.floor(disk.sizeBytes / length);
  if (slots === 0) return [];
  const parts = Math.min(count, slots);
  const offsets = new Set([0, (slots - 1) * length]);
  for (let part = 0; part < parts; part += 1) {
    const from = Math.floor((part * slots) / parts);
    const room = Math.max(1, Math.floor(((part + 1) * slots) / parts) - from);
    offsets.add((from + (Buffer.from(random(6)).readUIntBE(0, 6) % room)) * length);
  }
  return [...offsets].sort((a, b) => a - b).map((offset) => ({ offset, length }));
}

/** Reads the ranges and marks the blank ones. The disk is closed again when it returns, so that nothing of it stays in a cache. */
export async function takeSamples(
  { disks, random }: { disks: DiskHost; random: (length: number) => Uint8Array },
  disk: DiskFacts,
  ranges: readonly SampleRange[],
): Promise<TakenSample[]> {
  const handle = await disks.open(disk, 'write');
  try {
    const taken: TakenSample[] = [];
    for (const range of ranges) taken.push({ ...range, before: await markedBefore(handle, range, random) });
    await handle.sync().catch(() => undefined);
    return taken;
  } finally {
    await handle.close();
  }
}

/** A blank range that takes no mark proves nothing, and is as good as one that cannot be read and never turned out zero. */
async function markedBefore(
  handle: DiskHandle,
  { offset, length }: SampleRange,
  random: (length: number) => Uint8Array,
): Promise<Buffer | undefined> {
  const there = await handle.read(offset, length).catch(() => undefined);
  if (there !== undefined && !isAllZero(there)) return there;
  const mark = Buffer.from(random(length));
  const isMarked = await handle.write(offset, mark).then(
    () => true,
    () => false,
  );
  // Zeros as `before`: zeros again afterwards are no proof.
  return isMarked ? mark : there;
}

/** Reads the ranges again and judges each. */
export async function judgeSamples(
  disks: DiskHost,
  disk: DiskFacts,
  { method, taken }: { method: EraseMethod; taken: readonly TakenSample[] },
): Promise<MessageInitShape<typeof SampledRangeSchema>[]> {
  const handle = await disks.open(disk, 'read');
  try {
    const judged: MessageInitShape<typeof SampledRangeSchema>[] = [];
    for (const { offset, length, before } of taken) {
      const after = await handle.read(offset, length).catch(() => undefined);
      judged.push({
        offset: BigInt(offset),
        length,
        beforeSha256: digest(before),
        afterSha256: digest(after),
        clean: judgeSample(method, { before, after }),
      });
    }
    return judged;
  } finally {
    await handle.close();
  }
}

const digest = (bytes: Uint8Array | undefined): Uint8Array =>
  bytes === undefined ? new Uint8Array() : createHash('sha256').update(bytes).digest();
