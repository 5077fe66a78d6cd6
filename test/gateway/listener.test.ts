import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { AgentFrameSchema, encodeMessage } from '../../proto/index.ts';
import {
  createAuthorities,
  dial,
  dialTls,
  helloFrame,
  hostLeaf,
  nodeCaPem,
  nodeLeaf,
  openAgent,
  serialOf,
  servicePath,
  TestAgent,
  type TestAuthorities,
  TestCall,
  type TestLeaf,
} from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { turns } from './manual-scheduler.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

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
    assert.throws(() => gateway.setTls({ key: one.keyPem, cert: other.chainPem }), {
      code: 'INVALID_CONFIG',
      message: 'the private key does not belong to the certificate',
    });
    assert.throws(() => gateway.setTls({ key: 'x', cert: other.chainPem }), { code: 'INVALID_CONFIG', message: /do not parse/ });
    assert.throws(() => gateway.setTls({ key: one.keyPem, cert: one.chainPem, ca: 'nothing' }), {
      code: 'INVALID_CONFIG',
      message: /do not parse/,
    });
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

  it('H-11 C53 a ticket from a session with a certificate opens nothing for a client without one', async () => {
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
    const call = new TestCall(session, `${servicePath}/Join`, {
      te: undefined as never,
      'grpc-timeout': '1S',
      'x-grpc-test-echo-trailing-bin': 'q6ur',
      'grpc-encoding': 'identity',
    });
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
