/**
 * A test client of the agent protocol: real TLS 1.3, real certificates of the project's own authorities, HTTP/2 by node, gRPC
 * framing by hand. It says what a daemon may say, and whatever else a test wants to try.
 */
import assert from 'node:assert/strict';
import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import { type ConnectionOptions, type TLSSocket, connect as tlsConnect } from 'node:tls';
import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  AgentFrameSchema,
  decodeMessage,
  encodeMessage,
  type HelloSchema,
  type ServerFrame,
  ServerFrameSchema,
} from '../../proto/index.ts';

export * from './certificates.ts';

import type { TestLeaf } from './certificates.ts';

export interface DialOptions {
  readonly port: number;
  readonly leaf?: TestLeaf | null;
  readonly servername?: string;
  readonly tls?: Partial<ConnectionOptions>;
}

export function dialTls({ port, leaf = null, servername = 'gw.test', tls = {} }: DialOptions): TLSSocket {
  const credentials = leaf === null ? {} : { key: leaf.keyPem, cert: leaf.chainPem };
  return tlsConnect({
    host: '127.0.0.1',
    port,
    servername,
    ALPNProtocols: ['h2'],
    minVersion: 'TLSv1.3',
    rejectUnauthorized: false,
    ...credentials,
    ...tls,
  });
}

/** Of the certificate that a new handshake is shown. */
export async function serialOf(port: number): Promise<string> {
  const socket = dialTls({ port });
  await once(socket, 'secureConnect');
  const serial = (socket.getPeerX509Certificate() as X509Certificate).serialNumber.toLowerCase();
  socket.destroy();
  return serial;
}

export function dial(options: DialOptions): http2.ClientHttp2Session {
  const session = http2.connect('https://gw.test', { createConnection: () => dialTls(options) });
  session.on('error', () => undefined);
  return session;
}

export const servicePath = '/bettercompute.agent.v1.AgentGateway';

/** How a call ended: the HTTP status, and gRPC's verdict from trailers or a trailers-only answer. */
export interface CallEnd {
  readonly http: number;
  readonly status: number | null;
  readonly message: string;
  readonly reason: string | null;
  readonly pushbackMs: number | null;
  readonly retryAfter: string | null;
  readonly rstCode: number;
  /** The verdict came in the first and only header block. */
  readonly isTrailersOnly: boolean;
}

const grpcHeaders = { ':method': 'POST', 'content-type': 'application/grpc+proto', te: 'trailers' };

/** One call whose bytes the test writes itself. */
export class TestCall {
  readonly stream: http2.ClientHttp2Stream;
  readonly ended: Promise<CallEnd>;
  readonly messages: Buffer[] = [];
  #buffer = Buffer.alloc(0);
  #headers: http2.IncomingHttpHeaders = {};
  #trailers: http2.IncomingHttpHeaders | null = null;
  #isTrailersOnly = false;
  #waiting: (() => void)[] = [];
  #isClosed = false;

  constructor(session: http2.ClientHttp2Session, path: string, headers: http2.OutgoingHttpHeaders = {}) {
    this.stream = session.request({ ...grpcHeaders, ':path': path, ...headers }, { endStream: false });
    this.stream.on('response', (received, flags) => {
      this.#headers = received;
      this.#isTrailersOnly = (flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    });
    this.stream.on('trailers', (received) => {
      this.#trailers = received;
    });
    this.stream.on('data', (chunk: Buffer) => this.#onData(chunk));
    this.stream.on('error', () => undefined);
    this.ended = new Promise((resolve) => {
      this.stream.once('close', () => {
        this.#isClosed = true;
        this.#wake();
        resolve(this.#end());
      });
    });
  }

  get headers(): http2.IncomingHttpHeaders {
    return this.#headers;
  }

  /** Raw bytes. */
  write(bytes: Uint8Array): void {
    this.stream.write(bytes);
  }

  send(message: Uint8Array, flag = 0): void {
    const prefix = Buffer.alloc(5);
    prefix[0] = flag;
    prefix.writeUInt32BE(message.length, 1);
    this.stream.write(Buffer.concat([prefix, message]));
  }

  halfClose(): void {
    this.stream.end();
  }

  /** The next message; null when the call ends without another. */
  async next(): Promise<Buffer | null> {
    while (this.messages.length === 0 && !this.#isClosed) await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    return this.messages.shift() ?? null;
  }

  #onData(chunk: Buffer): void {
    this.#buffer = Buffer.concat([this.#buffer, chunk]);
    while (this.#buffer.length >= 5 && this.#buffer.length >= 5 + this.#buffer.readUInt32BE(1)) {
      const end = 5 + this.#buffer.readUInt32BE(1);
      assert.equal(this.#buffer[0], 0, 'an answer is never compressed (TRN-019)');
      this.messages.push(Buffer.from(this.#buffer.subarray(5, end)));
      this.#buffer = this.#buffer.subarray(end);
    }
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #end(): CallEnd {
    const verdict: http2.IncomingHttpHeaders = this.#trailers ?? this.#headers;
    const text = (name: string): string | null => (typeof verdict[name] === 'string' ? verdict[name] : null);
    const status = text('grpc-status');
    const pushback = text('grpc-retry-pushback-ms');
    return {
      http: Number(this.#headers[':status'] ?? 0),
      status: status === null ? null : Number(status),
      message: decodeURIComponent(text('grpc-message') ?? ''),
      reason: text('x-bc-reason'),
      pushbackMs: pushback === null ? null : Number(pushback),
      retryAfter: text('retry-after'),
      rstCode: this.stream.rstCode ?? 0,
      isTrailersOnly: this.#isTrailersOnly,
    };
  }
}

export type AgentFrameInit = MessageInitShape<typeof AgentFrameSchema>;
export type FrameCase = NonNullable<ServerFrame['frame']['case']>;
export type FrameValue<C extends FrameCase> = Extract<ServerFrame['frame'], { case: C }>['value'];

export type HelloInit = Omit<MessageInitShape<typeof HelloSchema>, '$typeName'>;

export const helloFrame = (over: HelloInit = {}): AgentFrameInit => ({
  frame: {
    case: 'hello',
    value: {
      protoMin: 1,
      protoMax: 1,
      daemonVersion: '0.1.0',
      capabilities: ['instance.snapshot'],
      bootId: 'boot-1',
      role: 'node',
      ...over,
    },
  },
});

/** A daemon's end of a session, frame by frame. */
export class TestAgent {
  readonly session: http2.ClientHttp2Session;
  readonly call: TestCall;

  constructor(options: DialOptions) {
    this.session = dial(options);
    this.call = new TestCall(this.session, `${servicePath}/Session`);
  }

  get ended(): Promise<CallEnd> {
    return this.call.ended;
  }

  send(frame: AgentFrameInit): void {
    this.call.send(encodeMessage(AgentFrameSchema, frame, 'agentFrame'));
  }

  hello(over: HelloInit = {}): void {
    this.send(helloFrame(over));
  }

  async next(): Promise<ServerFrame | null> {
    const message = await this.call.next();
    return message === null ? null : decodeMessage(ServerFrameSchema, message, 'serverFrame');
  }

  /** The next frame, which must be of this case. */
  async expect<C extends FrameCase>(name: C): Promise<FrameValue<C>> {
    const frame = await this.next();
    if (frame === null) throw new Error(`expected ${name}, the call ended: ${JSON.stringify(await this.ended)}`);
    assert.equal(frame.frame.case, name);
    return frame.frame.value as FrameValue<C>;
  }

  /** Skips frames of other cases. */
  async until<C extends FrameCase>(name: C): Promise<FrameValue<C>> {
    for (;;) {
      const frame = await this.next();
      if (frame === null) throw new Error(`waited for ${name}, the call ended: ${JSON.stringify(await this.ended)}`);
      if (frame.frame.case === name) return frame.frame.value as FrameValue<C>;
    }
  }

  close(): void {
    this.session.destroy();
  }
}

export async function openAgent(options: DialOptions, over: HelloInit = {}): Promise<{ agent: TestAgent; welcome: FrameValue<'welcome'> }> {
  const agent = new TestAgent(options);
  agent.hello(over);
  return { agent, welcome: await agent.expect('welcome') };
}
