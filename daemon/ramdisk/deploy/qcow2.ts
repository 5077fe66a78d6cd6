/**
 * qcow2 → raw by `qemu-img`. The file is not a stream: it is kept in the ramdisk's memory, verified, and only then given to the program.
 *
 * Threat: a qcow2 file may name other files, whose content would land on the disk (backing file, data file). One that does is refused.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ControlError } from '../../../domain/errors.ts';
import { runProgram } from '../../kinds/program.ts';

const infoSchema = z.looseObject({
  format: z.literal('qcow2'),
  'virtual-size': z.number().int().positive(),
  'backing-filename': z.string().optional(),
  'format-specific': z.looseObject({ data: z.looseObject({ 'data-file': z.string().optional() }).optional() }).optional(),
});

/** @throws UNAVAILABLE `scratch-full` before anything is fetched that would not fit */
export async function assertScratchRoom(scratch: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(scratch);
  if (bytes <= bavail * bsize) return;
  throw new ControlError(
    'UNAVAILABLE',
    `a qcow2 image of ${bytes} bytes does not fit into ${bavail * bsize} bytes of memory: offer it as raw with zstd, which is not kept`,
    { details: { reason: 'scratch-full' } },
  );
}

/** Keeps a stream in a file. @returns its size and hash */
export async function keepStream(path: string, source: AsyncIterable<Uint8Array>): Promise<{ bytes: number; sha256: Buffer }> {
  const hash = createHash('sha256');
  let bytes = 0;
  const file = await open(path, 'w', 0o600);
  try {
    for await (const chunk of source) {
      hash.update(chunk);
      bytes += chunk.length;
      await file.writeFile(chunk);
    }
  } finally {
    await file.close();
  }
  return { bytes, sha256: hash.digest() };
}

/**
 * The raw content of a verified qcow2 file.
 *
 * @throws UNSUPPORTED without qemu-img, and for an image that leans on other files; DATA_CORRUPT when it is no qcow2;
 *   INVALID_STATE `target-full`
 */
export async function rawOfQcow2(
  path: string,
  { diskBytes, scratch, signal }: { diskBytes: number; scratch: string; signal: AbortSignal },
) {
  const info = await runProgram('qemu-img', ['info', '-f', 'qcow2', '--output=json', path], signal);
  const parsed = infoSchema.safeParse(info.status === 0 ? JSON.parse(info.stdout) : null);
  if (!parsed.success) throw notQcow2(info.stderr);
  const { 'virtual-size': size, 'backing-filename': backing, 'format-specific': specific } = parsed.data;
  if (backing !== undefined || specific?.data?.['data-file'] !== undefined)
    throw new ControlError('UNSUPPORTED', 'the qcow2 image leans on another file (backing or data file)', {
      details: { reason: 'qcow2-backing' },
    });
  if (size > diskBytes)
    throw new ControlError('INVALID_STATE', `the image does not fit: it has ${size} bytes, the disk ${diskBytes}`, {
      details: { reason: 'target-full' },
    });
  const raw = join(scratch, 'image.raw');
  const end = await runProgram('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', path, raw], signal);
  if (end.status !== 0) throw notQcow2(end.stderr);
  return { path: raw, bytes: () => createReadStream(raw, { highWaterMark: 1024 * 1024, signal }) as AsyncIterable<Buffer> };
}

const notQcow2 = (said: string): ControlError =>
  new ControlError('DATA_CORRUPT', `qemu-img does not read the image: ${(said.trim().split('\n')[0] ?? '').slice(0, 200)}`, {
    details: { reason: 'image-corrupt' },
  });
