/**
 * Writing an image with its checksum, of `dd` and `sha256sum` over the same bytes on the same file system: both end when the bytes have
 * reached the disk. Ours comes over HTTP, is hashed while it is written, and holds its first mebibyte back; the read-back that
 * deploy.image makes afterwards is beside it in the detail.
 */

import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, rmSync, statSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openImageSource, sourceTiming } from '../../daemon/ramdisk/deploy/image-source.ts';
import { hashDisk, writeImage } from '../../daemon/ramdisk/deploy/write-image.ts';
import { openDisk } from '../../daemon/ramdisk/disks/file-handle.ts';
import type { Figure } from './gateway-load.ts';

const limit = 0.8;
const mebibyte = 1024 * 1024;

export interface MetalImageOptions {
  readonly mebibytes?: number;
  readonly rounds?: number;
}

export async function figure({ mebibytes = 512, rounds = 5 }: MetalImageOptions = {}): Promise<Figure> {
  const folder = mkdtempSync(join(tmpdir(), 'bc-image-'));
  try {
    const image = join(folder, 'image');
    const sha256 = makeImage(image, mebibytes);
    const disk = join(folder, 'disk');
    writeFileSync(disk, '');
    truncateSync(disk, mebibytes * mebibyte);
    const server = spawn(process.execPath, ['--input-type=module', '--eval', serverSource, image], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      const url = await new Promise<string>((resolve) => server.stdout.once('data', (line: Buffer) => resolve(line.toString().trim())));
      const [bare, ours, readback]: number[][] = [[], [], []];
      for (let round = 0; round < rounds; round += 1) {
        bare?.push(await bareWrite(image, disk));
        const { writeMs, readMs } = await ourWrite({ url, disk, bytes: mebibytes * mebibyte, sha256 });
        ours?.push(writeMs);
        readback?.push(readMs);
      }
      const rate = (all: readonly number[] = []): number => (mebibytes / median(all)) * 1000;
      const ratio = rate(ours) / rate(bare);
      return {
        figure: 'metal-image',
        ratio: Math.round(ratio * 1000) / 1000,
        goal: `≥ ${limit}`,
        holds: ratio >= limit,
        detail: {
          mebibytes,
          rounds,
          oursMebibytesPerSecond: Math.round(rate(ours)),
          ddMebibytesPerSecond: Math.round(rate(bare)),
          readbackMebibytesPerSecond: Math.round(rate(readback)),
        },
      };
    } finally {
      server.kill();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const median = (all: readonly number[]): number => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)] ?? Number.NaN;

/** A process of its own, as the server is on another machine. */
const serverSource = `
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
const path = process.argv[1];
const server = createServer((_request, response) => {
  response.writeHead(200, { 'content-length': statSync(path).size });
  createReadStream(path, { highWaterMark: 1024 * 1024 }).pipe(response);
});
server.listen(0, '127.0.0.1', () => console.log('http://127.0.0.1:' + server.address().port + '/image'));
`;

function makeImage(path: string, mebibytes: number): string {
  const hash = createHash('sha256');
  const file = openSync(path, 'w');
  const block = randomBytes(mebibyte);
  for (let at = 0; at < mebibytes; at += 1) {
    block.writeUInt32LE(at, 0);
    hash.update(block);
    writeSync(file, block);
  }
  closeSync(file);
  return hash.digest('hex');
}

/** What a person would type. */
async function bareWrite(image: string, disk: string): Promise<number> {
  const startedAt = performance.now();
  await run(
    `dd if='${image}' bs=1M status=none | tee >(sha256sum >/dev/null) | dd of='${disk}' bs=1M conv=notrunc,fsync iflag=fullblock status=none`,
  );
  return performance.now() - startedAt;
}

function run(line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn('bash', ['-c', line], { stdio: ['ignore', 'ignore', 'inherit'] });
    child.once('error', reject);
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`${line} ended with ${code}`))));
  });
}

interface OurWrite {
  readonly url: string;
  readonly disk: string;
  readonly bytes: number;
  readonly sha256: string;
}

async function ourWrite({ url, disk, bytes, sha256 }: OurWrite): Promise<{ writeMs: number; readMs: number }> {
  const { signal } = new AbortController();
  const startedAt = performance.now();
  const source = await openImageSource({ url, signal, timing: sourceTiming, sleep: async () => undefined, onResume: () => undefined });
  const handle = await openDisk(disk, 'write');
  const written = await writeImage(source.bytes, { handle, diskBytes: statSync(disk).size, signal, onHead: () => undefined });
  if (written.sha256.toString('hex') !== sha256) throw new Error('another checksum');
  await handle.write(0, written.head);
  await handle.sync();
  const writtenAt = performance.now();
  if ((await hashDisk(handle, bytes, signal)).toString('hex') !== sha256) throw new Error('another checksum is read back');
  const readAt = performance.now();
  await handle.close();
  return { writeMs: writtenAt - startedAt, readMs: readAt - writtenAt };
}
