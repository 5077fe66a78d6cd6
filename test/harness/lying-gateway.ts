/**
 * A gateway that was taken over, between one daemon and the real one: it presents the deployment's own serving certificate, passes on
 * everything, and tells the daemon what a test makes of the frames. To the real gateway it is the daemon.
 */
import { readFileSync } from 'node:fs';
import {
  type ClientHttp2Session,
  connect,
  constants,
  createSecureServer,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { toBinary } from '@bufbuild/protobuf';
import { getIdentity } from '../../daemon/state/identity.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { bounds, decodeMessage, MessageReader, type ServerFrame, ServerFrameSchema } from '../../proto/index.ts';
import { grpcPrefix } from './fake-gateway.ts';

/** What the daemon is told in place of a frame: nothing, the frame, or others. */
export type Lie = (frame: ServerFrame) => readonly ServerFrame[] | Promise<readonly ServerFrame[]>;

export interface LyingGateway {
  readonly url: string;
  /** From the next frame on; null: the truth. */
  lie(how: Lie | null): void;
  /** Every frame that the real gateway sent, as it was. */
  readonly heard: readonly ServerFrame[];
  /** Cuts the daemon off, which dials again. */
  cut(): void;
  close(): Promise<void>;
}

export interface LyingGatewayOptions {
  /** Of the stack. */
  readonly home: string;
  /** https://host:port of the real gateway. */
  readonly target: string;
  /** Data folder of the daemon that it will be dialled by. */
  readonly folder: string;
}

const sessionPath = /\/Session$/;

export async function startLyingGateway({ home, target, folder }: LyingGatewayOptions): Promise<LyingGateway> {
  const tls = (name: string): Buffer => readFileSync(join(home, 'tls', name));
  const { identity, key } = await getIdentity(folder);
  const client = {
    key: key.export({ type: 'pkcs8', format: 'pem' }),
    cert: identity.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
    // Who the real one is has been proven when the daemon joined it.
    rejectUnauthorized: false,
  };
  const heard: ServerFrame[] = [];
  const sessions = new Map<ServerHttp2Session, ClientHttp2Session>();
  let lying: Lie | null = null;
  const server = createSecureServer({ key: tls('gateway.key'), cert: tls('gateway.crt'), requestCert: true, rejectUnauthorized: false });
  server.on('session', (near) => {
    const far = connect(target, client);
    sessions.set(near, far);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on('error', () => undefined);
      one.once('close', () => {
        sessions.delete(near);
        other.destroy();
      });
    }
  });
  server.on('stream', (stream, headers) => {
    const far = sessions.get(stream.session as ServerHttp2Session);
    if (far === undefined || far.destroyed) return stream.close(constants.NGHTTP2_CANCEL);
    relay(stream, headers, {
      far,
      tell: async (frame) => {
        heard.push(frame);
        return lying === null ? [frame] : lying(frame);
      },
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const cut = (): void => {
    for (const near of sessions.keys()) near.destroy();
  };
  return {
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    heard,
    lie: (how) => void (lying = how),
    cut,
    close: () => {
      cut();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

interface Far {
  readonly far: ClientHttp2Session;
  readonly tell: (frame: ServerFrame) => Promise<readonly ServerFrame[]>;
}

function relay(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, { far, tell }: Far): void {
  const { ':authority': _, ...rest } = headers;
  const upstream = far.request(rest, { endStream: false });
  let trailers: OutgoingHttpHeaders = {};
  stream.on('error', () => upstream.close());
  upstream.on('error', () => stream.close(constants.NGHTTP2_CANCEL));
  stream.pipe(upstream);
  upstream.on('response', (answer) => stream.respond(own(answer), { waitForTrailers: true }));
  upstream.on('trailers', (answer) => void (trailers = own(answer)));
  stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  const said = sessionPath.test(String(headers[':path'])) ? lied(upstream, tell) : upstream;
  void (async () => {
    try {
      for await (const chunk of said) if (!stream.destroyed) stream.write(chunk);
      stream.end();
    } catch {
      stream.close(constants.NGHTTP2_CANCEL);
    }
  })();
}

async function* lied(said: AsyncIterable<Uint8Array>, tell: Far['tell']): AsyncGenerator<Buffer> {
  const reader = new MessageReader(bounds.serverFrame, (fault) => new Error(fault.reason));
  for await (const chunk of said) {
    const messages: Uint8Array[] = [];
    reader.push(chunk, { onMessage: (message) => void messages.push(message) });
    for (const message of messages)
      for (const frame of await tell(decodeMessage(ServerFrameSchema, message, 'serverFrame')))
        yield grpcPrefix(toBinary(ServerFrameSchema, frame));
  }
}

/** Without what belongs to one connection. */
const own = (headers: IncomingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name === ':status' || !name.startsWith(':')));
