/** An api that was taken over, between an approver's program and the real one: what is asked goes on, what is answered a test may bend. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The answer in place of the real one; undefined: the real one. */
export type Bend = (path: string, answer: unknown) => unknown;

export interface LyingApi {
  readonly url: string;
  /** From the next request on; null: the truth. */
  bend(how: Bend | null): void;
  /** What was sent through it, in order, with what is no question. */
  readonly sent: readonly { readonly path: string; readonly body: unknown }[];
  close(): Promise<void>;
}

export async function startLyingApi(target: string): Promise<LyingApi> {
  const sent: { path: string; body: unknown }[] = [];
  let bending: Bend | null = null;
  const server = createServer((request, response) => {
    void (async () => {
      const url = new URL(request.url ?? '/', target);
      const body = await bodyOf(request);
      if (request.method === 'POST') sent.push({ path: url.pathname, body: JSON.parse(body.toString('utf8')) as unknown });
      const answer = await fetch(url, {
        method: request.method ?? 'GET',
        headers: { authorization: request.headers.authorization ?? '', 'content-type': 'application/json' },
        ...(body.length === 0 ? {} : { body }),
      });
      const truth: unknown = await answer.json();
      const told = bending?.(`${url.pathname}${url.search}`, structuredClone(truth)) ?? truth;
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(JSON.stringify(told));
    })().catch((error: unknown) => response.writeHead(502).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sent,
    bend: (how) => void (bending = how),
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
