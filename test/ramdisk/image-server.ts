/** An HTTP server with one image that behaves as a test says: cuts, stalls, knows no Range, answers errors first. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ImageServerScript {
  /** Of the n-th request (from 0): after so many bytes the connection is cut. */
  readonly cutAfter?: readonly number[];
  /** Of the n-th request: after so many bytes nothing comes any more. */
  readonly stallAfter?: readonly number[];
  readonly ignoresRange?: boolean;
  /** Statuses of the first requests. */
  readonly statuses?: readonly number[];
  /** Sends no length. */
  readonly chunked?: boolean;
  readonly redirectTo?: string;
}

export interface ImageServer {
  readonly url: string;
  /** The Range header of each request; empty for none. */
  readonly ranges: string[];
  close(): Promise<void>;
}

export async function startImageServer(image: Uint8Array, script: ImageServerScript = {}): Promise<ImageServer> {
  const ranges: string[] = [];
  const server = createServer((request, response) => {
    const nth = ranges.push(request.headers.range ?? '') - 1;
    const status = script.statuses?.[nth];
    if (status !== undefined) return void response.writeHead(status).end('no');
    if (script.redirectTo !== undefined && request.url === '/image')
      return void response.writeHead(302, { location: script.redirectTo }).end();
    const asked = /^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1];
    const from = script.ignoresRange === true || asked === undefined ? 0 : Number(asked);
    const part = image.subarray(from);
    response.writeHead(from === 0 ? 200 : 206, {
      ...(script.chunked === true ? {} : { 'content-length': part.length }),
      ...(from === 0 ? {} : { 'content-range': `bytes ${from}-${image.length - 1}/${image.length}` }),
    });
    const [cut, stall] = [script.cutAfter?.[nth], script.stallAfter?.[nth]];
    if (cut !== undefined) return void response.write(part.subarray(0, cut), () => response.destroy());
    if (stall !== undefined) return void response.write(part.subarray(0, stall));
    response.end(part);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/image`,
    ranges,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}
