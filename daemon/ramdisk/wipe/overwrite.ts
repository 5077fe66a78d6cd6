/** The way that always works: the whole disk written over with random data, then with zeros. */
import { createCipheriv, randomBytes } from 'node:crypto';
import type { DiskFacts, DiskHandle } from '../disks/disk-host.ts';

const chunkBytes = 4 * 1024 * 1024;

export interface OverwriteOptions {
  readonly signal: AbortSignal;
  /** Bytes written so far, over all passes. */
  readonly onBytes: (done: number) => void;
}

/** @throws the disk's own error at the first block that cannot be written; the signal's reason */
export async function overwrite(handle: DiskHandle, disk: DiskFacts, { signal, onBytes }: OverwriteOptions): Promise<void> {
  // A key stream: random for whoever reads the disk, and faster than any disk.
  const stream = createCipheriv('aes-256-ctr', randomBytes(32), randomBytes(16));
  const zeros = Buffer.alloc(chunkBytes);
  const passes: readonly ((length: number) => Uint8Array)[] = [
    (length) => stream.update(zeros.subarray(0, length)),
    (length) => zeros.subarray(0, length),
  ];
  let done = 0;
  for (const content of passes) {
    for (let offset = 0; offset < disk.sizeBytes; offset += chunkBytes) {
      signal.throwIfAborted();
      const length = Math.min(chunkBytes, disk.sizeBytes - offset);
      await handle.write(offset, content(length));
      done += length;
      onBytes(done);
    }
    // A pass that is still in a cache was never on the disk: the next one would merely replace it there.
    await handle.sync();
  }
}
