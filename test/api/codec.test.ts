import assert from 'node:assert/strict';
import { createServer, request, type Server } from 'node:http';
import { defaultPayloadConverter } from '@temporalio/common';
import { payloadToJSON } from '@temporalio/common/lib/proto-utils.js';
import type { CodecEndpoint } from '../../api/codec.ts';
import { createOperatorApp } from '../../api/operator.ts';
import { createCodecHandlers } from '../../runtime/codec-http.ts';
import { createPayloadCodec } from '../../runtime/payload-codec.ts';
import { bearer, closeServer, createDeployment, listen, portsOf } from './support.ts';

const ui = 'http://localhost:8233';
const codec = createPayloadCodec(new Uint8Array(32).fill(7));
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

describe('the codec endpoint', () => {
  let server: Server;
  let url: string;

  const start = async (endpoint?: Partial<CodecEndpoint>): Promise<void> => {
    const full: CodecEndpoint = { handlers: createCodecHandlers(codec), access: 'bearer', origins: [ui], bearer, ...endpoint };
    const app = createOperatorApp({
      ports: portsOf(createDeployment()),
      bearer,
      version: '0',
      log: quiet as never,
      ...(endpoint === undefined ? {} : { codec: full }),
    });
    server = createServer(app);
    url = await listen(server);
  };
  afterEach(() => closeServer(server));

  interface Answer {
    readonly status: number;
    readonly headers: Record<string, unknown>;
    readonly body: Record<string, unknown>;
  }

  /** fetch would set Host by itself; a browser that was tricked sends another. */
  const send = (path: string, options: { method?: string; headers?: Record<string, string>; body?: unknown } = {}): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const outgoing = request(
        new URL(path, url),
        { method: options.method ?? 'POST', headers: { 'content-type': 'application/json', ...options.headers } },
        (incoming) => {
          const chunks: Buffer[] = [];
          incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
          incoming.on('end', () => {
            const text = Buffer.concat(chunks).toString();
            resolve({
              status: incoming.statusCode ?? 0,
              headers: incoming.headers,
              body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>),
            });
          });
        },
      );
      outgoing.on('error', reject);
      outgoing.end(options.body === undefined ? undefined : JSON.stringify(options.body));
    });

  const auth = { authorization: `Bearer ${bearer}` };
  const encrypted = async (value: unknown): Promise<unknown> => {
    const [payload] = await codec.encode([defaultPayloadConverter.toPayload(value)]);
    return payloadToJSON(payload as never);
  };

  it('is not there unless it was turned on', async () => {
    await start();
    assert.equal((await send('/codec/decode', { headers: auth, body: {} })).status, 404);
  });

  it('decodes what a worker encrypted, and passes plain payloads through', async () => {
    await start({});
    const plain = payloadToJSON(defaultPayloadConverter.toPayload({ from: 'the UI' }) as never);
    const { status, body } = await send('/codec/decode', { headers: auth, body: { payloads: [await encrypted({ actor: 'ann' }), plain] } });
    assert.equal(status, 200);
    const data = (body['payloads'] as { data: string }[]).map(
      (payload) => JSON.parse(Buffer.from(payload.data, 'base64').toString()) as unknown,
    );
    assert.deepEqual(data, [{ actor: 'ann' }, { from: 'the UI' }]);
  });

  it('answers a body without payloads with none', async () => {
    await start({});
    assert.deepEqual((await send('/codec/decode', { headers: auth, body: {} })).body, { payloads: [] });
  });

  it('asks for the bearer, unless this host may', async () => {
    await start({});
    const refused = await send('/codec/decode', { body: {} });
    assert.deepEqual([refused.status, refused.body['code']], [401, 'UNAUTHENTICATED']);
    await closeServer(server);
    await start({ access: 'loopback' });
    assert.equal((await send('/codec/decode', { body: {} })).status, 200);
  });

  it('refuses a name that is not loopback, which a tricked browser sends', async () => {
    await start({ access: 'loopback' });
    for (const host of ['evil.example', 'localhost.evil.example:8400', '127.0.0.1.evil.example']) {
      const { status, body } = await send('/codec/decode', { headers: { host }, body: {} });
      assert.deepEqual([status, body['message']], [403, 'the codec endpoint answers this host only, by a loopback name'], host);
    }
  });

  it('answers the preflight of a listed UI and refuses any other page', async () => {
    await start({ access: 'loopback' });
    const preflight = await send('/codec/decode', { method: 'OPTIONS', headers: { origin: ui, 'access-control-request-method': 'POST' } });
    assert.deepEqual([preflight.status, preflight.headers['access-control-allow-origin']], [204, ui]);
    const asked = await send('/codec/decode', { headers: { origin: ui }, body: {} });
    assert.deepEqual([asked.status, asked.headers['access-control-allow-origin']], [200, ui]);
    for (const origin of ['http://evil.example', 'null', 'http://localhost:82330']) {
      const { status, body, headers } = await send('/codec/decode', { headers: { origin }, body: {} });
      assert.deepEqual([status, body['code'], headers['access-control-allow-origin']], [403, 'PERMISSION_DENIED', undefined]);
    }
  });

  it('refuses what is no payload', async () => {
    await start({});
    const { status, body } = await send('/codec/encode', { headers: auth, body: { payloads: 'all' } });
    assert.deepEqual([status, body['code'], body['message']], [400, 'INVALID_INPUT', 'codec request: payloads is not a list']);
  });
});
