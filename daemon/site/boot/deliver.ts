/** Sends a file that was judged: ETag from its checksum, ranges, HEAD; cut off rather than completed when somebody writes to it meanwhile. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { OpenArtefact } from './artefacts.ts';
import { matchesTag, parseRange } from './range.ts';

const pieceBytes = 256 * 1024;

/** Closes the file. */
export async function deliver(artefact: OpenArtefact, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { file, sizeBytes, sha256 } = artefact;
  const etag = `"sha256-${sha256}"`;
  try {
    response.setHeader('etag', etag);
    response.setHeader('accept-ranges', 'bytes');
    response.setHeader('cache-control', 'no-cache');
    // RFC 9530: of the whole file, whatever part is sent.
    response.setHeader('repr-digest', `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`);
    if (matchesTag(request.headers['if-none-match'], etag)) return void response.writeHead(304).end();
    const range =
      request.method === 'GET'
        ? parseRange(request.headers.range, { sizeBytes, etag, ifRange: request.headers['if-range']?.toString() })
        : ({ kind: 'whole' } as const);
    if (range.kind === 'beyond')
      return void response.writeHead(416, { 'content-range': `bytes */${sizeBytes}`, 'content-length': 0 }).end();
    const [first, last] = range.kind === 'part' ? [range.first, range.last] : [0, sizeBytes - 1];
    response.writeHead(range.kind === 'part' ? 206 : 200, {
      'content-type': 'application/octet-stream',
      'content-length': last - first + 1,
      ...(range.kind === 'part' ? { 'content-range': `bytes ${first}-${last}/${sizeBytes}` } : {}),
    });
    if (request.method === 'HEAD') return void response.end();
    await pipeline(Readable.from(pieces(artefact, first, last), { objectMode: false, highWaterMark: pieceBytes }), response);
  } finally {
    await file.close();
  }
}

/** The last piece goes out only when the file is still the one that was judged: iPXE checks nothing itself. */
async function* pieces({ file, isUnchanged }: OpenArtefact, first: number, last: number): AsyncGenerator<Buffer> {
  for (let at = first; at <= last; ) {
    const piece = Buffer.allocUnsafe(Math.min(pieceBytes, last - at + 1));
    const { bytesRead } = await file.read(piece, 0, piece.length, at);
    at += bytesRead;
    if (bytesRead === 0 || (at > last && !(await isUnchanged()))) throw new Error('the artefact was written to while it was sent');
    yield piece.subarray(0, bytesRead);
  }
}
