/**
 * Writes a stream to a disk and hashes it on the way. The first mebibyte, where partition tables and boot code lie, is held back and
 * handed to the caller, who writes it when the checksum has held: no moment leaves an unverified image that boots.
 *
 * One block is on its way to the disk while the next one is read and hashed; two buffers are all the memory it takes.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../../domain/errors.ts';
import type { DiskHandle } from '../disks/disk-host.ts';

export const headBytes = 1024 * 1024;
const blockBytes = 4 * 1024 * 1024;

export interface WriteOptions {
  readonly handle: DiskHandle;
  readonly diskBytes: number;
  readonly signal: AbortSignal;
  /** Looks at the held-back head before anything is written; throws to refuse the image. */
  readonly onHead: (head: Buffer) => void;
}

export interface WrittenImage {
  readonly head: Buffer;
  readonly bytes: number;
  readonly sha256: Buffer;
}

/** @throws INVALID_STATE `target-full`; DATA_CORRUPT for an empty image; what the source, `onHead` and the disk throw */
export async function writeImage(source: AsyncIterable<Uint8Array>, options: WriteOptions): Promise<WrittenImage> {
  const { handle, diskBytes, signal, onHead } = options;
  const hash = createHash('sha256');
  let head: Buffer | undefined;
  let offset = 0;
  let inFlight: Promise<void> = Promise.resolve();
  try {
    for await (const block of blocksOf(source)) {
      signal.throwIfAborted();
      if (offset + block.length > diskBytes) throw targetFull(`more than the ${diskBytes} bytes of the disk`);
      hash.update(block);
      await inFlight;
      if (head === undefined) {
        head = Buffer.from(block.subarray(0, headBytes));
        onHead(head);
        await handle.write(0, Buffer.alloc(head.length));
      }
      const from = offset === 0 ? head.length : 0;
      inFlight = block.length === from ? Promise.resolve() : handle.write(offset + from, block.subarray(from));
      inFlight.catch(() => undefined);
      offset += block.length;
    }
  } finally {
    // The buffer is not ours again, and the disk not closed, before the last write is over.
    await inFlight.catch(() => undefined);
  }
  await inFlight;
  if (head === undefined) throw new ControlError('DATA_CORRUPT', 'the image is empty', { details: { reason: 'image-corrupt' } });
  return { head, bytes: offset, sha256: hash.digest() };
}

export const targetFull = (what: string): ControlError =>
  new ControlError('INVALID_STATE', `the image does not fit: it has ${what}`, { details: { reason: 'target-full' } });

/** Whole blocks and a rest, each valid until the next but one. */
async function* blocksOf(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  const buffers = [Buffer.allocUnsafeSlow(blockBytes), Buffer.allocUnsafeSlow(blockBytes)] as const;
  let at = 0;
  let filled = 0;
  for await (const chunk of source) {
    for (let from = 0; from < chunk.length; ) {
      const part = chunk.subarray(from, from + blockBytes - filled);
      (buffers[at] as Buffer).set(part, filled);
      from += part.length;
      filled += part.length;
      if (filled < blockBytes) continue;
      yield buffers[at] as Buffer;
      at = 1 - at;
      filled = 0;
    }
  }
  if (filled > 0) yield (buffers[at] as Buffer).subarray(0, filled);
}

/** The hash of the first `length` bytes of a disk, as they are read from it. */
export async function hashDisk(handle: DiskHandle, length: number, signal: AbortSignal): Promise<Buffer> {
  const hash = createHash('sha256');
  const read = (offset: number): Promise<Buffer> | undefined =>
    offset < length ? handle.read(offset, Math.min(blockBytes, length - offset)) : undefined;
  let next = read(0);
  for (let offset = 0; next !== undefined; offset += blockBytes) {
    const block = await next;
    signal.throwIfAborted();
    next = read(offset + blockBytes);
    next?.catch(() => undefined);
    hash.update(block);
  }
  return hash.digest();
}
