/** The WebSocket listener against strangers and bad clients, byte by byte. */
import assert from 'node:assert/strict';
import { createPrivateKey, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { day, minute } from '../../domain/time.ts';
import type { GatewayOptions } from '../../gateway/gateway.ts';
import { noLog } from '../../gateway/log.ts';
import { noMetrics } from '../../gateway/metrics.ts';
import { RenewLimit } from '../../gateway/renew-limit.ts';
import { createSystemScheduler } from '../../gateway/scheduler.ts';
import { sessionLimits } from '../../gateway/session/agent-session.ts';
import { TurnQueue } from '../../gateway/turn-queue.ts';
import { attachGatewayWs } from '../../gateway/websocket/attach.ts';
import { gatewayRenewHandler } from '../../gateway/websocket/renew.ts';
import { readGatewayProof, signNodeProof, verifyGatewayProof, webSocketAcceptOf } from '../../pki/handshake/index.ts';
import { parseCertificate, parsePemCertificates, signerFromPrivateKey } from '../../pki/x509/index.ts';
import {
  AgentFrameSchema,
  bounds,
  decodeMessage,
  encodeMessage,
  encodeWebSocketFrame,
  parseCloseReason,
  ServerFrameSchema,
  type WebSocketEnd,
  WebSocketLink,
} from '../../proto/index.ts';
import { clockOffBy, startRealGateway } from '../daemon/real-gateway.ts';
import { setStage } from '../daemon/stage.ts';
import { ManualScheduler } from '../gateway/manual-scheduler.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { joinedNode, type NodeInit } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';

interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** What came behind the head. */
  readonly rest: Buffer;
}

describe('the WebSocket listener', function () {
  this.timeout(30_000);
  const stage = setStage();

  async function listener(over: Omit<Partial<GatewayOptions>, 'store'> = {}) {
    const store = new MemoryStore();
    const running = await startRealGateway(stage.deployment, { store, ...over });
    stage.running.push(running);
    const { port } = await running.gateway.listenWebSocket({ host: '127.0.0.1', port: 0 });
    return { ...running, store, wsPort: port };
  }

  async function dial(port: number): Promise<TLSSocket> {
    const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    return socket;
  }

  /** Sends, and reads the head of the answer. */
  async function ask(socket: Socket, text: string | Buffer): Promise<HttpAnswer> {
    socket.write(text);
    let got = Buffer.alloc(0);
    return new Promise((resolve, reject) => {
      const onData = (chunk: Buffer): void => {
        got = Buffer.concat([got, chunk]);
        const end = got.indexOf('\r\n\r\n');
        if (end < 0) return;
        socket.off('data', onData);
        const [first = '', ...lines] = got.subarray(0, end).toString('latin1').split('\r\n');
        const headers = Object.fromEntries(
          lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
        );
        resolve({ status: Number(first.split(' ')[1]), headers, rest: got.subarray(end + 4) });
      };
      socket.on('data', onData);
      socket.once('close', () => reject(new Error('closed without an answer')));
    });
  }

  interface Proof extends Partial<NodeInit> {
    readonly nonce?: Uint8Array;
    readonly timeMs?: number;
    readonly trustDomain?: string;
    readonly signedFor?: string;
  }

  async function proofOf({ nonce = randomBytes(32), timeMs = Date.now(), trustDomain, signedFor, ...node }: Proof = {}) {
    const { identity, key } = await joinedNode(stage.deployment, { gatewayUrl: 'https://gw.test', ...node });
    const statement = {
      trustDomain: trustDomain ?? identity.trustDomain,
      nodeId: signedFor ?? identity.nodeId,
      nonce,
      timeMs: BigInt(timeMs),
    };
    return { text: await signNodeProof({ signer: signerFromPrivateKey(key), chain: identity.chain }, statement), nonce, identity };
  }

  const key = 'dGhlIHNhbXBsZSBub25jZQ==';
  const upgrade = (headers: Readonly<Record<string, string | undefined>>, path = '/v1/session'): string => {
    const all: Record<string, string | undefined> = {
      Host: 'gw.test',
      Upgrade: 'websocket',
      Connection: 'keep-alive, Upgrade',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': key,
      'Sec-WebSocket-Protocol': 'chat, bettercompute.agent.v1',
      ...headers,
    };
    const lines = Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [`${name}: ${value}\r\n`]));
    return `GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`;
  };

  interface Client {
    readonly socket: TLSSocket;
    readonly link: WebSocketLink;
    readonly messages: Uint8Array[];
    end: WebSocketEnd | null;
    pongs: number;
  }

  async function open(port: number, proof: Proof = {}, headers: Readonly<Record<string, string>> = {}): Promise<Client> {
    const socket = await dial(port);
    const answer = await ask(socket, upgrade({ 'x-bc-node-proof': (await proofOf(proof)).text, ...headers }));
    assert.equal(answer.status, 101);
    assert.equal(answer.headers['sec-websocket-extensions'], undefined);
    const client: Client = {
      socket,
      messages: [],
      end: null,
      pongs: 0,
      link: new WebSocketLink({
        as: 'client',
        maxMessageBytes: bounds.webSocketMessage,
        takesText: false,
        write: (bytes) => void socket.write(bytes),
        onMessage: (payload) => void client.messages.push(payload),
        onPong: () => void (client.pongs += 1),
        onEnd: (end) => void (client.end = end),
      }),
    };
    client.link.push(answer.rest);
    socket.on('data', (chunk: Buffer) => client.link.push(chunk));
    return client;
  }

  const hello = encodeMessage(AgentFrameSchema, { frame: { case: 'hello', value: { protoMin: 1, protoMax: 1 } } }, 'agentFrame');

  it('WS-002 answers the handshake of RFC 6455 with a proof by its serving key over the nonce, and then speaks the protocol', async () => {
    const { wsPort } = await listener();
    const { text, nonce, identity } = await proofOf();
    const socket = await dial(wsPort);
    const answer = await ask(socket, upgrade({ 'x-bc-node-proof': text }));
    assert.equal(answer.status, 101);
    // The accept value of RFC 6455, section 1.3, for its sample nonce.
    assert.equal(answer.headers['sec-websocket-accept'], 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=');
    assert.equal(webSocketAcceptOf(key), answer.headers['sec-websocket-accept']);
    assert.equal(answer.headers['sec-websocket-protocol'], 'bettercompute.agent.v1');
    const proof = readGatewayProof(answer.headers['x-bc-gateway-proof'] ?? '');
    const check = {
      trustDomain: identity.trustDomain,
      nodeId: 'node-1',
      nonce,
      key: parseCertificate(proof.chain[0] as Uint8Array).spki,
      now: Date.now(),
    };
    verifyGatewayProof(proof, check);
    for (const other of [{ nonce: randomBytes(32) }, { nodeId: 'node-2' }, { trustDomain: 'other.example' }])
      assert.throws(() => verifyGatewayProof(proof, { ...check, ...other }), { code: 'BAD_SIGNATURE' });
    for (const off of [-61_000, 61_000])
      assert.throws(() => verifyGatewayProof(proof, { ...check, now: Number(proof.timeMs) + off }), { code: 'CLOCK_SKEW' });
    socket.destroy();
  });

  it('WS-001 FRM-002 the first message after Hello is Welcome; Hello may come in the packet of the handshake', async () => {
    const { wsPort } = await listener();
    const socket = await dial(wsPort);
    const request = upgrade({ 'x-bc-node-proof': (await proofOf()).text });
    const answer = await ask(socket, Buffer.concat([Buffer.from(request), encodeWebSocketFrame(2, hello, Uint8Array.of(9, 8, 7, 6))]));
    assert.equal(answer.status, 101);
    const messages: Uint8Array[] = [];
    const link = new WebSocketLink({
      as: 'client',
      maxMessageBytes: bounds.webSocketMessage,
      takesText: false,
      write: () => undefined,
      onMessage: (payload) => void messages.push(payload),
      onPong: () => undefined,
      onEnd: () => undefined,
    });
    link.push(answer.rest);
    socket.on('data', (chunk: Buffer) => link.push(chunk));
    await eventually('Welcome came', () => messages.length > 0);
    assert.equal(decodeMessage(ServerFrameSchema, messages[0] as Uint8Array, 'serverFrame').frame.case, 'welcome');
    socket.destroy();
  });

  const strangers: readonly (readonly [string, () => Promise<Record<string, string | undefined>>, number, string])[] = [
    ['WS-033 no proof', async () => ({}), 401, 'no-client-certificate'],
    ['a proof that is no base64url', async () => ({ 'x-bc-node-proof': '!!' }), 401, 'bad-proof'],
    ['a proof that is no message', async () => ({ 'x-bc-node-proof': 'AAAA' }), 401, 'bad-proof'],
    [
      'WS-013 a signature for another node',
      async () => ({ 'x-bc-node-proof': (await proofOf({ signedFor: 'node-2' })).text }),
      401,
      'bad-proof',
    ],
    [
      'a signature for another trust domain',
      async () => ({ 'x-bc-node-proof': (await proofOf({ trustDomain: 'x.example' })).text }),
      401,
      'bad-proof',
    ],
    ['a nonce that is too short', async () => ({ 'x-bc-node-proof': (await proofOf({ nonce: randomBytes(16) })).text }), 401, 'bad-proof'],
    [
      'a proof of two minutes ago',
      async () => ({ 'x-bc-node-proof': (await proofOf({ timeMs: Date.now() - 2 * minute })).text }),
      401,
      'clock-skew',
    ],
    [
      'a proof of the future',
      async () => ({ 'x-bc-node-proof': (await proofOf({ timeMs: Date.now() + 2 * minute })).text }),
      401,
      'clock-skew',
    ],
  ];
  for (const [what, headers, status, reason] of strangers)
    it(`refuses ${what}: ${status} ${reason}`, async () => {
      const { wsPort, store } = await listener();
      const answer = await ask(await dial(wsPort), upgrade(await headers()));
      assert.deepEqual([answer.headers['x-bc-reason'], answer.status], [reason, status]);
      assert.equal(store.sessions.length, 0);
    });

  it('H-11 refuses an expired certificate, by the clock of the gateway', async () => {
    const { wsPort } = await listener({ scheduler: clockOffBy(2 * day) });
    const { text } = await proofOf({ timeMs: Date.now() + 2 * day });
    const answer = await ask(await dial(wsPort), upgrade({ 'x-bc-node-proof': text }));
    assert.deepEqual([answer.status, answer.headers['x-bc-reason']], [401, 'client-certificate-expired']);
  });

  it('takes a proof once', async () => {
    const { wsPort } = await listener();
    const request = upgrade({ 'x-bc-node-proof': (await proofOf()).text });
    assert.equal((await ask(await dial(wsPort), request)).status, 101);
    const again = await ask(await dial(wsPort), request);
    assert.deepEqual([again.status, again.headers['x-bc-reason']], [401, 'bad-proof']);
  });

  const malformed: readonly (readonly [string, Record<string, string | undefined>])[] = [
    ['another version', { 'Sec-WebSocket-Version': '8' }],
    ['no key', { 'Sec-WebSocket-Key': undefined }],
    ['a key of 15 bytes', { 'Sec-WebSocket-Key': Buffer.alloc(15).toString('base64') }],
    ['another protocol', { 'Sec-WebSocket-Protocol': 'chat' }],
    ['no protocol', { 'Sec-WebSocket-Protocol': undefined }],
    ['another upgrade', { Upgrade: 'h2c' }],
  ];
  for (const [what, headers] of malformed)
    it(`answers 400 to ${what}`, async () => {
      const { wsPort } = await listener();
      const answer = await ask(await dial(wsPort), upgrade({ 'x-bc-node-proof': (await proofOf()).text, ...headers }));
      assert.equal(answer.status, 400);
      assert.equal(answer.headers['sec-websocket-version'], '13');
    });

  it('WS-009 WS-016 sessions and renewals are served on an HTTP server of a host as well, whatever TLS stands before it', async () => {
    const { gateway } = await listener();
    const { key, cert } = stage.deployment.serving;
    const shared = {
      trustDomain: stage.deployment.trustDomain,
      anchors: () => [stage.deployment.bundle.nodeCa.certificate.der],
      isRevoked: () => false,
      scheduler: createSystemScheduler(),
      turns: new TurnQueue(),
      random: Math.random,
      log: noLog,
      metrics: noMetrics,
    };
    const services = { renew: async () => Buffer.from('renewed') };
    const host = createHttpServer(gatewayRenewHandler({ ...shared, services, renewLimit: new RenewLimit() }));
    const serving = () => ({ signer: signerFromPrivateKey(createPrivateKey(key)), chain: parsePemCertificates(cert) });
    const attached = attachGatewayWs(host, { ...shared, sessions: gateway.sessions, serving });
    host.listen(0, '127.0.0.1');
    await once(host, 'listening');
    const { port } = host.address() as AddressInfo;
    const socket = connectTcp({ port, host: '127.0.0.1' });
    const answer = await ask(socket, upgrade({ 'x-bc-node-proof': (await proofOf()).text }));
    assert.deepEqual([answer.status, attached.size], [101, 1]);
    const url = `http://127.0.0.1:${port}/v1/renew`;
    const unproven = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/x-protobuf' }, body: new Uint8Array() });
    assert.deepEqual([unproven.status, unproven.headers.get('x-bc-reason')], [401, 'no-client-certificate']);
    attached.destroyAll();
    await new Promise((resolve) => host.close(resolve));
  });

  it('WS-008 has no other route: 404, and 405 and 415 at the one of renewals', async () => {
    const { wsPort } = await listener();
    for (const [request, status] of [
      [upgrade({}, '/v1/poll'), 404],
      ['GET /v1/session HTTP/1.1\r\nHost: x\r\n\r\n', 404],
      ['POST /bettercompute.agent.v1.AgentGateway/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n', 404],
      ['GET /v1/renew HTTP/1.1\r\nHost: x\r\n\r\n', 405],
      ['POST /v1/renew HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}', 415],
    ] as const)
      assert.equal((await ask(await dial(wsPort), request)).status, status, request.split('\r\n')[0]);
  });

  it('WS-015 WS-011 refuses a renewal of 65,537 bytes by its length, and one that only grows so long; with the headers of gRPC', async () => {
    const { wsPort } = await listener();
    const head = 'POST /v1/renew HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n';
    const long = await ask(await dial(wsPort), `${head}Content-Length: 65537\r\n\r\n`);
    assert.deepEqual([long.status, long.headers['x-bc-reason'], long.headers['grpc-status']], [413, 'frame-too-large', '8']);
    const grows = await ask(await dial(wsPort), `${head}Transfer-Encoding: chunked\r\n\r\n10001\r\n${'x'.repeat(65_537)}\r\n`);
    assert.equal(grows.status, 413);
    const broken = await ask(await dial(wsPort), Buffer.from(`${head}Content-Length: 3\r\n\r\n\xff\xff\xff`, 'latin1'));
    assert.deepEqual([broken.status, broken.headers['x-bc-reason']], [400, 'undecodable-frame']);
  });

  it('B61 agrees on no extension, whatever is offered, and closes with 1002 on RSV1; B63 with 1003 on text', async () => {
    const { wsPort } = await listener();
    for (const [bytes, code] of [
      [Buffer.from([0xc2, 0x80, 1, 2, 3, 4]), 1002],
      [Buffer.from([0x81, 0x80, 1, 2, 3, 4]), 1003],
      [Buffer.from([0x82, 0x01, 0x00]), 1002],
    ] as const) {
      const client = await open(wsPort, {}, { 'Sec-WebSocket-Extensions': 'permessage-deflate; client_max_window_bits' });
      client.socket.write(bytes);
      await eventually('it is closed', () => client.end !== null);
      assert.equal(client.end?.code, code);
    }
  });

  it('TRN-044 says in the close frame why a session ends: 4000 and the gRPC status, the reason, the pushback', async () => {
    const { wsPort, gateway } = await listener();
    const first = await open(wsPort);
    first.link.send(encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame'));
    await eventually('it is closed', () => first.end !== null);
    assert.equal(first.end?.code, 4003);
    assert.deepEqual(parseCloseReason(first.end?.reason ?? '')?.reason, 'first-frame-not-hello');
    const second = await open(wsPort);
    second.link.send(hello);
    await eventually('it is welcomed', () => second.messages.length > 0);
    await gateway.close();
    await eventually('it is closed', () => second.end !== null || second.socket.destroyed);
    assert.equal(parseCloseReason(second.end?.reason ?? '')?.reason, 'draining');
  });

  it('B60 frees a session whose peer never answers the close within the time of its end', async () => {
    const { wsPort, gateway, store } = await listener();
    const client = await open(wsPort);
    client.link.send(hello);
    await eventually('it is welcomed', () => client.messages.length > 0);
    client.socket.removeAllListeners('data');
    client.socket.pause();
    gateway.sessions.find('node-1')?.onFenced();
    const session = gateway.sessions.find('node-1');
    assert.ok(session !== undefined);
    // What the sweep of each second does, by another clock.
    session.sweep(Date.now() + sessionLimits.endWithinMs + 1);
    await eventually('it is gone', () => gateway.sessions.find('node-1') === undefined);
    await eventually('its row ended', () => store.sessions[0]?.endedAs === 'superseded');
    client.socket.destroy();
  });

  it('pings, and cuts who answers none of two', async () => {
    const scheduler = new ManualScheduler();
    const { wsPort, gateway } = await listener({ scheduler });
    const client = await open(wsPort, { now: scheduler.now(), timeMs: scheduler.now() });
    client.link.send(hello);
    await eventually('it is welcomed', () => client.messages.length > 0);
    client.socket.removeAllListeners('data');
    client.socket.on('data', () => undefined);
    const closed = new Promise((resolve) => client.socket.once('close', resolve));
    for (let seconds = 0; seconds < 75; seconds += 1) scheduler.advance(1_000);
    await closed;
    assert.equal(gateway.sessions.size, 0);
  });

  it('H-11 a session over a WebSocket takes over the one over gRPC, and the other way round: one a node', async () => {
    const { wsPort, url, store } = await listener();
    const member = await stage.daemonAt(url);
    await eventually('it is connected', () => store.sessions.length === 1 && store.sessions[0]?.endedAs === null);
    const client = await open(wsPort);
    client.link.send(hello);
    await eventually('the older one ended', () => store.sessions[0]?.endedAs === 'superseded');
    await eventually('and then this one', () => client.end !== null);
    assert.equal(parseCloseReason(client.end?.reason ?? '')?.reason, 'superseded');
    await member.stop();
  });
});
