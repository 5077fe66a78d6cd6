import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import type { X509Certificate } from 'node:crypto';
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectionLimits } from '../../gateway/grpc/connections.ts';
import { type FileWatch, watchTlsFiles } from '../../gateway/tls/watch-files.ts';
import { AgentFrameSchema, encodeMessage } from '../../proto/index.ts';
import { createAuthorities, dial, dialTls, helloFrame, hostLeaf, nodeCaPem, nodeLeaf, openAgent, servicePath, type TestAuthorities, TestAgent, TestCall, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { grpcPrefixed, RawConnection } from './raw-h2.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

const serialOf = async (port: number): Promise<string> => {
  const socket = dialTls({ port });
  await once(socket, 'secureConnect');
  const serial = (socket.getPeerX509Certificate() as X509Certificate).serialNumber.toLowerCase();
  socket.destroy();
  return serial;
};

describe('the daemon listener', () => {
  let running: RunningGateway;
  let authorities: TestAuthorities;
  let leaf: TestLeaf;
  before(async () => {
    running = await startGateway();
    authorities = running.authorities;
    leaf = await nodeLeaf(authorities, 'node-1');
  });
  after(() => running.gateway.close());

  it('TLS-011, TLS-012, TLS-017 presents a new certificate to new handshakes and keeps open sessions and options', async () => {
    const { gateway, port } = running;
    const { agent } = await openAgent({ port, leaf });
    const renewed = await hostLeaf(authorities, 'gateway');
    gateway.setTls({ key: renewed.keyPem, cert: renewed.chainPem });
    assert.equal(await serialOf(port), renewed.serial);
    agent.send({ frame: { case: 'heartbeat', value: { sequence: 5n } } });
    assert.equal((await agent.expect('heartbeatAck')).sequence, 5n);
    agent.close();
    const old = dialTls({ port, leaf, tls: { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' } });
    const [error] = (await once(old, 'error')) as [Error];
    assert.match(error.message, /protocol version|alert/i);
    const { agent: again } = await openAgent({ port, leaf: await nodeLeaf(authorities, 'node-after-reload') });
    again.close();
  });

  it('TLS-018 refuses a pair that does not match and changes nothing', async () => {
    const { gateway, port } = running;
    const before = await serialOf(port);
    const [one, other] = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    assert.throws(() => gateway.setTls({ key: one.keyPem, cert: other.chainPem }), { code: 'INVALID_CONFIG', message: 'the private key does not belong to the certificate' });
    assert.throws(() => gateway.setTls({ key: 'x', cert: other.chainPem }), { code: 'INVALID_CONFIG', message: /do not parse/ });
    assert.throws(() => gateway.setTls({ key: one.keyPem, cert: one.chainPem, ca: 'nothing' }), { code: 'INVALID_CONFIG', message: /do not parse/ });
    assert.equal(await serialOf(port), before);
  });

  it('TLS-004 judges by the authorities it was given last', async () => {
    const { gateway, port, serving } = running;
    const others = await createAuthorities();
    const stranger = await nodeLeaf(others, 'node-x');
    const refused = new TestAgent({ port, leaf: stranger });
    assert.equal((await refused.ended).reason, 'client-certificate-invalid');
    refused.close();
    gateway.setTls({ key: serving.keyPem, cert: serving.chainPem, ca: nodeCaPem(authorities) + nodeCaPem(others) });
    (await openAgent({ port, leaf: stranger })).agent.close();
    gateway.setTls({ key: serving.keyPem, cert: serving.chainPem, ca: nodeCaPem(authorities) });
    const again = new TestAgent({ port, leaf: stranger });
    assert.equal((await again.ended).reason, 'client-certificate-invalid');
    again.close();
  });

  it('B16 takes many reloads, and each next handshake shows the newest', async () => {
    const { gateway, port } = running;
    const pairs = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    for (let reload = 0; reload < 60; reload += 1) {
      const pair = pairs[reload % 2] as TestLeaf;
      gateway.setTls({ key: pair.keyPem, cert: pair.chainPem });
      if (reload % 20 === 19) assert.equal(await serialOf(port), pair.serial);
    }
  });

  it('H-11 a ticket from a session with a certificate opens nothing for a client without one', async () => {
    const { port } = running;
    const tickets: Buffer[] = [];
    const first = dialTls({ port, leaf });
    first.on('session', (ticket: Buffer) => void tickets.push(ticket));
    await once(first, 'secureConnect');
    const proved = new TestCall(http2.connect('https://gw.test', { createConnection: () => first }), `${servicePath}/Session`);
    proved.send(Buffer.from([0x0a, 0x04, 0x08, 0x01, 0x10, 0x01]));
    assert.notEqual(await proved.next(), null);
    proved.stream.session?.destroy();
    for (const ticket of [...tickets, first.getSession()]) {
      if (ticket === undefined) continue;
      const second = dialTls({ port, leaf: null, tls: { session: ticket } });
      await once(second, 'secureConnect');
      assert.equal(second.isSessionReused(), false);
      const call = new TestCall(http2.connect('https://gw.test', { createConnection: () => second }), `${servicePath}/Session`);
      assert.deepEqual([(await call.ended).status, (await call.ended).reason], [16, 'no-client-certificate']);
      second.destroy();
    }
  });

  it('TRN-016, TRN-021, TRN-022 answers 405 and 415 to what is no gRPC', async () => {
    const session = dial({ port: running.port, leaf });
    const statusOf = async (headers: http2.OutgoingHttpHeaders): Promise<number> => {
      const call = new TestCall(session, `${servicePath}/Join`, headers);
      call.halfClose();
      return (await call.ended).http;
    };
    assert.equal(await statusOf({ ':method': 'GET' }), 405);
    assert.equal(await statusOf({ ':method': 'PUT' }), 405);
    assert.equal(await statusOf({ 'content-type': 'application/json' }), 415);
    for (const type of ['application/grpc', 'application/grpc+proto']) {
      const call = new TestCall(session, `${servicePath}/Join`, { 'content-type': type });
      call.send(Buffer.from('hello'));
      call.halfClose();
      assert.equal(String(await call.next()), 'hello');
      const end = await call.ended;
      assert.deepEqual([end.http, end.status, end.isTrailersOnly], [200, 0, false]);
      assert.equal(call.headers['content-type'], 'application/grpc+proto');
    }
    session.destroy();
  });

  it('TRN-020, B28 tolerates grpc-timeout, metadata of all sorts and a missing te', async () => {
    const session = dial({ port: running.port, leaf });
    const call = new TestCall(session, `${servicePath}/Join`, { te: undefined as never, 'grpc-timeout': '1S', 'x-grpc-test-echo-trailing-bin': 'q6ur', 'grpc-encoding': 'identity' });
    call.send(new Uint8Array());
    call.halfClose();
    assert.equal((await call.next())?.length, 0);
    assert.equal((await call.ended).status, 0);
    const gzip = new TestCall(session, `${servicePath}/Join`, { 'grpc-encoding': 'gzip' });
    assert.deepEqual([(await gzip.ended).status, (await gzip.ended).reason, (await gzip.ended).isTrailersOnly], [12, 'compressed', true]);
    session.destroy();
  });

  it('takes a message split over DATA frames byte by byte, and several in one', async () => {
    const agent = new TestAgent({ port: running.port, leaf: await nodeLeaf(authorities, 'node-split') });
    const message = encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame');
    const whole = Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]);
    for (const byte of whole) {
      agent.call.write(Buffer.from([byte]));
      await turns(1);
    }
    await agent.expect('welcome');
    const beat = (sequence: bigint): Buffer => {
      const bytes = encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence } } }, 'agentFrame');
      return Buffer.concat([Buffer.from([0, 0, 0, 0, bytes.length]), bytes]);
    };
    agent.call.write(Buffer.concat([beat(1n), beat(2n), beat(3n)]));
    for (const sequence of [1n, 2n, 3n]) assert.equal((await agent.expect('heartbeatAck')).sequence, sequence);
    agent.close();
  });

  it('B20 frees both sides when the client never half-closes: trailers, then RST_STREAM NO_ERROR', async () => {
    const agent = new TestAgent({ port: running.port, leaf: await nodeLeaf(authorities, 'node-b20') });
    agent.hello();
    await agent.expect('welcome');
    agent.hello();
    const end = await agent.ended;
    assert.deepEqual([end.status, end.rstCode], [3, http2.constants.NGHTTP2_NO_ERROR]);
    await eventually('the session is gone', () => running.store.openOf('node-b20') === undefined);
    agent.close();
  });
});

describe('connections that give nothing', () => {
  let running: RunningGateway;
  let scheduler: ManualScheduler;
  let leaf: TestLeaf;
  before(async () => {
    scheduler = new ManualScheduler();
    running = await startGateway({ scheduler });
    leaf = await nodeLeaf(running.authorities, 'node-1');
  });
  after(() => running.gateway.close());

  const connected = async (certificate = leaf, options: ConstructorParameters<typeof RawConnection>[2] = {}): Promise<RawConnection> => {
    const socket = dialTls({ port: running.port, leaf: certificate });
    await once(socket, 'secureConnect');
    return new RawConnection(socket, {}, options);
  };
  const pass = async (ms: number): Promise<void> => {
    for (let second = 0; second < ms; second += 1_000) {
      scheduler.advance(1_000);
      await turns(3);
    }
  };
  const count = (many: number): Promise<boolean> => eventually(`${many} connections`, () => running.gateway.connections.size === many);

  it('B03 closes TLS and silence, and SETTINGS only, at the deadline and not before', async () => {
    const [silent, polite] = [await connected(leaf, { isPolite: false }), await connected()];
    polite.start();
    await count(2);
    let closed = 0;
    for (const { socket } of [silent, polite]) socket.on('close', () => void (closed += 1));
    await pass(9_000);
    assert.equal(closed, 0);
    await pass(2_000);
    await count(0);
    await eventually('both are closed', () => closed === 2);
  });

  it('B03 keeps a connection while a session runs, and closes it when it has ended', async () => {
    const { agent } = await openAgent({ port: running.port, leaf });
    for (let round = 0; round < 4; round += 1) {
      agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
      await agent.expect('heartbeatAck');
      await pass(10_000);
      assert.equal(running.gateway.connections.size, 1);
    }
    agent.call.halfClose();
    assert.equal((await agent.ended).status, 0);
    await pass(12_000);
    await count(0);
    agent.close();
  });

  it('TRN-009 sends a PING each 20 s and closes after two without an answer', async () => {
    const answering = await connected(await nodeLeaf(running.authorities, 'node-answers'));
    const stopped = await connected(await nodeLeaf(running.authorities, 'node-stopped'), { isPolite: false });
    const hello = grpcPrefixed(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'));
    const beat = grpcPrefixed(encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame'));
    const streams = [answering, stopped].map((connection) => {
      connection.start();
      const stream = connection.open();
      connection.data(stream, hello);
      return { connection, stream };
    });
    await eventually('both sessions are open', () => running.gateway.sessions.size === 2);
    for (let second = 0; second < 100 && running.gateway.connections.size === 2; second += 1) {
      for (const { connection, stream } of streams) connection.data(stream, beat);
      await turns(10);
      await pass(1_000);
    }
    await count(1);
    assert.equal(stopped.counts.pings, connectionLimits.unansweredPings);
    assert.ok(answering.counts.pings >= 2, String(answering.counts.pings));
    answering.socket.destroy();
    await count(0);
  });

  it('B46 ends a stream that is silent although its connection answers every PING', async () => {
    const { agent } = await openAgent({ port: running.port, leaf: await nodeLeaf(running.authorities, 'node-silent') });
    await pass(52_000);
    assert.equal((await agent.ended).reason, 'heartbeat-lost');
    agent.close();
  });
});

describe('the door', () => {
  it('runs eight handshakes at a time, lets the others in when those are done, and drops what waited too long', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities } = await startGateway({ scheduler });
    const leaf = await nodeLeaf(authorities, 'node-1');
    // Eight that connect and never begin TLS.
    const idle = Array.from({ length: 8 }, () => connect(port, '127.0.0.1'));
    await Promise.all(idle.map((socket) => once(socket, 'connect')));
    const late = dialTls({ port, leaf });
    let isSecure = false;
    late.once('secureConnect', () => {
      isSecure = true;
    });
    late.on('error', () => undefined);
    await turns(100);
    assert.equal(isSecure, false);
    (idle[3] as (typeof idle)[number]).destroy();
    await eventually('the waiting one gets its place', () => isSecure);
    late.destroy();
    for (const socket of idle) socket.destroy();
    const waiters = Array.from({ length: 9 }, () => connect(port, '127.0.0.1'));
    await Promise.all(waiters.map((socket) => once(socket, 'connect')));
    for (const socket of waiters) socket.on('error', () => undefined);
    await turns(50);
    scheduler.advance(31_000);
    const dropped = once(waiters[8] as (typeof waiters)[number], 'close');
    (waiters[0] as (typeof waiters)[number]).destroy();
    await dropped;
    for (const socket of waiters) socket.destroy();
    await gateway.close();
  });
});

describe('watching TLS files', () => {
  let folder: string;
  let authorities: TestAuthorities;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'bc-tls-'));
    authorities = await createAuthorities();
  });
  after(() => rm(folder, { recursive: true }));

  const write = async (leaf: TestLeaf, parts: readonly ('key' | 'cert')[] = ['key', 'cert']): Promise<void> => {
    if (parts.includes('key')) await writeFile(join(folder, 'gateway.key'), leaf.keyPem);
    if (parts.includes('cert')) await writeFile(join(folder, 'gateway.crt'), leaf.chainPem);
  };

  it('TLS-013, TLS-014, H-12 hands over each changed set once, keeps the old one for a broken pair, and tries the next change', async () => {
    const [first, second] = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    await write(first);
    await writeFile(join(folder, 'node-ca.pem'), nodeCaPem(authorities));
    const files = { key: join(folder, 'gateway.key'), cert: join(folder, 'gateway.crt'), ca: join(folder, 'node-ca.pem') };
    const { gateway, port } = await startGateway({ authorities });
    const errors: string[] = [];
    let reloads = 0;
    const scheduler = new ManualScheduler();
    const watch: FileWatch = watchTlsFiles(files, (material) => gateway.setTls(material), { scheduler, onError: (error) => void errors.push(error.message), onReload: () => void (reloads += 1) });
    await watch.check();
    assert.equal(await serialOf(port), first.serial);
    // Same content under a new time: nothing happens. New content under the old time: it does.
    const stamp = new Date(1_000_000_000_000);
    for (const path of [files.key, files.cert]) await utimes(path, stamp, stamp);
    await watch.check();
    assert.equal(reloads, 1);
    await write(second, ['key']);
    await watch.check();
    await watch.check();
    assert.deepEqual(errors, ['Gateway serving certificate not reloaded: the private key does not belong to the certificate']);
    assert.equal(await serialOf(port), first.serial);
    await write(second);
    for (const path of [files.key, files.cert]) await utimes(path, stamp, stamp);
    await watch.check();
    assert.equal(await serialOf(port), second.serial);
    assert.equal(reloads, 2);
    await rm(files.cert);
    await watch.check();
    assert.match(errors[1] as string, /^Gateway serving certificate not reloaded: ENOENT/);
    // TLS-005: by itself each 60 s.
    await write(first);
    scheduler.advance(59_999);
    await watch.check();
    scheduler.advance(1);
    await eventually('the timer looks', () => reloads === 3);
    watch.close();
    assert.equal(scheduler.pending, 0);
    await gateway.close();
  });

  it('refuses a listener without node authorities', async () => {
    const leaf = await hostLeaf(authorities, 'gateway');
    await assert.rejects(startGateway({ tls: { key: leaf.keyPem, cert: leaf.chainPem } }), { code: 'INVALID_CONFIG', message: /needs the node authorities/ });
  });

  it('SKEW-021 refuses a protocol range that is none', async () => {
    for (const protocol of [{ min: 0, max: 1 }, { min: 2, max: 1 }, { min: 1.5, max: 2 }, { min: 1, max: Number.NaN }]) {
      await assert.rejects(startGateway({ protocol }), { code: 'INVALID_CONFIG', message: /protocol range/ });
    }
  });
});

