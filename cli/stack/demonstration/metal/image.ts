/** The image of the demonstration, a disk with one partition, and the server that delivers it. */
import { createHash, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { encodeGpt } from '../../../../daemon/ramdisk/deploy/gpt.ts';

const mebibyte = 1024 * 1024;
const blockBytes = 512;

export interface ImageHost {
  readonly url: string;
  readonly sha256: string;
  readonly bytes: number;
  close(): void;
}

function makeImage(bytes: number): Buffer {
  const image = randomBytes(bytes);
  const alignment = mebibyte / blockBytes;
  const last = (bytes / mebibyte - 1) * alignment - 1;
  const partition = { number: 1, typeGuid: randomBytes(16), guid: randomBytes(16), first: alignment, last, attributes: 0n, name: 'root' };
  const { primary, backup } = encodeGpt(
    {
      blockBytes,
      diskGuid: randomBytes(16),
      firstUsable: alignment,
      lastUsable: last,
      entryCount: 128,
      entryBytes: 128,
      partitions: [partition],
    },
    bytes,
  );
  image.fill(0, 0, blockBytes);
  image.set([0xee], 450);
  image.writeUInt32LE(1, 454);
  image.writeUInt32LE(bytes / blockBytes - 1, 458);
  image.set([0x55, 0xaa], 510);
  image.set(primary, blockBytes);
  image.set(backup.bytes, backup.offset);
  return image;
}

export async function hostImage(): Promise<ImageHost> {
  const image = makeImage(8 * mebibyte);
  const server = createServer((request, response) => {
    const [, from = '0'] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? [];
    const start = Math.min(Number(from), image.length);
    const part = image.subarray(start);
    response.writeHead(request.headers.range === undefined ? 200 : 206, {
      'content-length': part.length,
      'accept-ranges': 'bytes',
      'content-type': 'application/octet-stream',
      ...(request.headers.range === undefined ? {} : { 'content-range': `bytes ${start}-${image.length - 1}/${image.length}` }),
    });
    response.end(request.method === 'HEAD' ? undefined : part);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/system.raw`,
    sha256: createHash('sha256').update(image).digest('hex'),
    bytes: image.length,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
