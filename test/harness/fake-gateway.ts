/**
 * A gateway that speaks the real protocol over real TLS 1.3 and HTTP/2, and does exactly what a test tells it, lies included. It is no
 * model of ours: it decides nothing. By itself it welcomes, answers heartbeats and confirms results, so that a test says only
 * what it is about.
 */
import {
  createSecureServer,
  type Http2SecureServer,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import {
  type AgentFrame,
  AgentFrameSchema,
  decodeMessage,
  type Hello,
  ServerFrameSchema,
  type TunnelFrame,
  TunnelFrameSchema,
  type WelcomeSchema,
} from '../../proto/index.ts';
import type { TestDeployment } from './deployment.ts';

export type ServerFrameInit = MessageInitShape<typeof ServerFrameSchema>;
export type AgentCase = NonNullable<AgentFrame['frame']['case']>;
export type AgentValue<C extends AgentCase> = Extract<AgentFrame['frame'], { case: C }>['value'];

export interface FakeGatewayOptions {
  readonly deployment: TestDeployment;
  /** Another serving pair than the deployment's. */
  readonly serving?: { readonly key: string; readonly cert: string };
  readonly minVersion?: 'TLSv1.2' | 'TLSv1.3';
  readonly maxVersion?: 'TLSv1.2' | 'TLSv1.3';
  /** Fields of Welcome; null: send none, the test does. */
  readonly welcome?: (hello: Hello) => MessageInitShape<typeof WelcomeSchema> | null;
  readonly answersHeartbeats?: boolean;
  readonly confirmsResults?: boolean;
  readonly onJoin?: (request: Uint8Array) => Promise<Uint8Array>;
  readonly onRenew?: (request: Uint8Array, peer: TLSSocket) => Promise<Uint8Array>;
  /** Refuses Session streams, with these trailers, before anything else. */
  readonly refuseSession?: (attempt: number) => OutgoingHttpHeaders | null;
  readonly now?: () => number;
}

export const grpcPrefix = (message: Uint8Array): Buffer => {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
};

const encode = (frame: ServerFrameInit): Buffer => grpcPrefix(toBinary(ServerFrameSchema, create(ServerFrameSchema, frame)));

/** Thrown by onJoin and onRenew: the call ends with these trailers. */
export class CallRefusal extends Error {
  readonly trailers: OutgoingHttpHeaders;
  constructor(trailers: OutgoingHttpHeaders) {
    super('refused');
    this.trailers = trailers;
  }
}

/** The gateway's end of one Session stream. */
export class FakeSession {
  readonly stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  readonly frames: AgentFrame[] = [];
  readonly closed: Promise<void>;
  hello: Hello | undefined;
  #taken = 0;
  #waiting: (() => void)[] = [];
  #isClosed = false;
  #buffer = Buffer.alloc(0);

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, onFrame: (frame: AgentFrame, session: FakeSession) => void) {
    this.stream = stream;
    this.headers = headers;
    stream.on('error', () => undefined);
    stream.on('data', (chunk: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, chunk]);
      while (this.#buffer.length >= 5 && this.#buffer.length >= 5 + this.#buffer.readUInt32BE(1)) {
        const end = 5 + this.#buffer.readUInt32BE(1);
        const frame = decodeMessage(AgentFrameSchema, this.#buffer.subarray(5, end), 'agentFrame');
        this.#buffer = this.#buffer.subarray(end);
        this.frames.push(frame);
        onFrame(frame, this);
        this.#wake();
      }
    });
    this.closed = new Promise((resolve) => {
      stream.once('close', () => {
        this.#isClosed = true;
        this.#wake();
        resolve();
      });
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  send(frame: ServerFrameInit): void {
    this.sendBytes(encode(frame));
  }

  sendBytes(bytes: Uint8Array): void {
    if (!this.stream.destroyed) this.stream.write(bytes);
  }

  /** The next frame of this case that was not taken before; earlier frames of other cases are passed over. */
  async take<C extends AgentCase>(name: C): Promise<AgentValue<C>> {
    for (;;) {
      while (this.#taken < this.frames.length) {
        const { frame } = this.frames[this.#taken++] as AgentFrame;
        if (frame.case === name) return frame.value as AgentValue<C>;
      }
      if (this.#isClosed)
        throw new Error(`waited for ${name}, the session was closed after ${this.frames.map((one) => one.frame.case).join(', ')}`);
      await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    }
  }

  /** Resolves when another frame has come. @throws when the session is closed */
  async nextFrame(): Promise<void> {
    if (this.#isClosed) throw new Error('waited for a frame, the session was closed');
    await new Promise<void>((resolve) => void this.#waiting.push(resolve));
  }

  all<C extends AgentCase>(name: C): AgentValue<C>[] {
    return this.frames.filter((one) => one.frame.case === name).map((one) => one.frame.value as AgentValue<C>);
  }

  /** Ends it with a status. */
  end(trailers: OutgoingHttpHeaders = { 'grpc-status': '0' }): void {
    endWith(this.stream, trailers);
  }

  goaway(): void {
    this.stream.session?.goaway(0);
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** The gateway's end of one Tunnel stream. */
export class FakeTunnel {
  readonly stream: ServerHttp2Stream;
  readonly frames: TunnelFrame['frame'][] = [];
  readonly closed: Promise<void>;
  #buffer = Buffer.alloc(0);

  constructor(stream: ServerHttp2Stream) {
    this.stream = stream;
    stream.on('data', (chunk: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, chunk]);
      while (this.#buffer.length >= 5 && this.#buffer.length >= 5 + this.#buffer.readUInt32BE(1)) {
        const end = 5 + this.#buffer.readUInt32BE(1);
        this.frames.push(decodeMessage(TunnelFrameSchema, this.#buffer.subarray(5, end), 'tunnelFrame').frame);
        this.#buffer = this.#buffer.subarray(end);
      }
    });
    // What the machine has said all of, it is let go of.
    stream.once('end', () => stream.end());
    this.closed = new Promise((resolve) => void stream.once('close', () => resolve()));
  }

  send(frame: MessageInitShape<typeof TunnelFrameSchema>): void {
    this.sendBytes(grpcPrefix(toBinary(TunnelFrameSchema, create(TunnelFrameSchema, frame))));
  }

  sendBytes(bytes: Uint8Array): void {
    if (!this.stream.destroyed) this.stream.write(bytes);
  }

  /** Everything on channel 0 until now. */
  data(): Buffer {
    return Buffer.concat(this.frames.flatMap((frame) => (frame.case === 'data' ? [frame.value.data] : [])));
  }

  /** The frame that says the tunnel is over. */
  end(): { readonly exitCode: number; readonly reason: string } | undefined {
    const last = this.frames.find((frame) => frame.case === 'closed');
    return last === undefined ? undefined : { exitCode: last.value.exitCode, reason: last.value.reason };
  }
}

function endWith(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  if (stream.destroyed) return;
  if (!stream.headersSent) {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto', ...trailers }, { endStream: true });
    return;
  }
  stream.once('wantTrailers', () => stream.sendTrailers(trailers));
  stream.end();
}

export class FakeGateway {
  readonly url: string;
  readonly port: number;
  readonly sessions: FakeSession[] = [];
  readonly joins: Uint8Array[] = [];
  readonly renewals: Uint8Array[] = [];
  /** Tunnel streams, in the order they came. */
  readonly tunnels: FakeTunnel[] = [];
  /** Session streams that were asked for, refused ones included. */
  attempts = 0;
  readonly #server: Http2SecureServer;
  readonly #connections = new Set<ServerHttp2Session>();
  readonly #options: FakeGatewayOptions;
  #taken = 0;
  #waiting: (() => void)[] = [];
  #epoch = 0n;

  constructor(server: Http2SecureServer, options: FakeGatewayOptions) {
    this.#server = server;
    this.#options = options;
    this.port = (server.address() as AddressInfo).port;
    this.url = `https://127.0.0.1:${this.port}`;
    server.on('session', (session) => {
      this.#connections.add(session);
      session.on('error', () => undefined);
      session.once('close', () => this.#connections.delete(session));
    });
    server.on('sessionError', () => undefined);
    server.on('stream', (stream, headers) => this.#onStream(stream, headers));
  }

  get connections(): number {
    return this.#connections.size;
  }

  /** The next session, in the order they were opened, once its Hello has come. */
  async nextSession(): Promise<FakeSession> {
    for (;;) {
      const session = this.sessions[this.#taken];
      if (session?.hello !== undefined) {
        this.#taken += 1;
        return session;
      }
      await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    }
  }

  /** Cuts every connection, without a word. */
  cut(): void {
    for (const session of this.#connections) session.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on('error', () => undefined);
    const method = String(headers[':path']).split('/').at(-1);
    if (method === 'Session') return this.#onSession(stream, headers);
    if (method === 'Join') return void this.#onCall(stream, { log: this.joins, answer: this.#options.onJoin });
    if (method === 'Renew') return void this.#onCall(stream, { log: this.renewals, answer: (request) => this.#onRenew(request, stream) });
    if (method === 'Tunnel') return this.#onTunnel(stream);
    endWith(stream, { 'grpc-status': '12' });
  }

  #onTunnel(stream: ServerHttp2Stream): void {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto' }, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    this.tunnels.push(new FakeTunnel(stream));
    this.#wake();
  }

  /** The tunnel of this place in the order they came. */
  async tunnel(at: number): Promise<FakeTunnel> {
    for (;;) {
      const tunnel = this.tunnels[at];
      if (tunnel !== undefined) return tunnel;
      await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    }
  }

  #onRenew(request: Uint8Array, stream: ServerHttp2Stream): Promise<Uint8Array> {
    const { onRenew } = this.#options;
    if (onRenew === undefined) throw new CallRefusal({ 'grpc-status': '12' });
    return onRenew(request, stream.session?.socket as TLSSocket);
  }

  async #onCall(
    stream: ServerHttp2Stream,
    call: { log: Uint8Array[]; answer: ((request: Uint8Array) => Promise<Uint8Array>) | undefined },
  ): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    const request = Buffer.concat(chunks).subarray(5);
    call.log.push(request);
    try {
      if (call.answer === undefined) throw new CallRefusal({ 'grpc-status': '12' });
      const answer = await call.answer(request);
      stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto' }, { waitForTrailers: true });
      stream.write(grpcPrefix(answer));
      endWith(stream, { 'grpc-status': '0' });
    } catch (error) {
      endWith(
        stream,
        error instanceof CallRefusal ? error.trailers : { 'grpc-status': '13', 'grpc-message': encodeURIComponent(String(error)) },
      );
    }
  }

  #onSession(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    this.attempts += 1;
    const refusal = this.#options.refuseSession?.(this.attempts) ?? null;
    if (refusal !== null) {
      endWith(stream, refusal);
      this.#wake();
      return;
    }
    stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto' }, { waitForTrailers: true });
    this.sessions.push(new FakeSession(stream, headers, (frame, session) => this.#onFrame(frame, session)));
  }

  #onFrame({ frame }: AgentFrame, session: FakeSession): void {
    const { welcome = () => ({}), answersHeartbeats = true, confirmsResults = true, now = Date.now } = this.#options;
    if (frame.case === 'hello') {
      this.#epoch += 1n;
      const asked = welcome(frame.value);
      if (asked !== null) {
        const value = {
          protocolVersion: 1,
          serverTimeMs: BigInt(now()),
          epoch: this.#epoch,
          heartbeatIntervalMs: 60_000,
          reconnectWindowMs: 1,
          gatewayId: 'fake-1',
          ...asked,
        };
        session.send({ frame: { case: 'welcome', value } });
      }
      session.hello = frame.value;
      this.#wake();
    }
    if (frame.case === 'heartbeat' && answersHeartbeats)
      session.send({ frame: { case: 'heartbeatAck', value: { sequence: frame.value.sequence, serverTimeMs: BigInt(now()) } } });
    if (frame.case === 'commandResult' && confirmsResults)
      session.send({ frame: { case: 'resultReceipt', value: { commandId: frame.value.commandId } } });
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Resolves when at least this many Session streams were asked for. */
  async attempted(count: number): Promise<void> {
    while (this.attempts < count) await new Promise<void>((resolve) => void this.#waiting.push(resolve));
  }
}

export async function startFakeGateway(options: FakeGatewayOptions): Promise<FakeGateway> {
  const { key, cert } = options.serving ?? options.deployment.serving;
  const server = createSecureServer({
    key,
    cert,
    requestCert: true,
    rejectUnauthorized: false,
    minVersion: options.minVersion ?? 'TLSv1.3',
    ...(options.maxVersion === undefined ? {} : { maxVersion: options.maxVersion }),
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return new FakeGateway(server, options);
}
