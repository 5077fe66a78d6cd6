import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connectionLimits } from '../../gateway/grpc/connections.ts';
import { Admission } from '../../gateway/tls/admission.ts';
import { TurnQueue } from '../../gateway/turn-queue.ts';
import { AgentFrameSchema, encodeMessage } from '../../proto/index.ts';
import { dialTls, helloFrame, nodeLeaf, openAgent, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { grpcPrefixed, RawConnection } from './raw-h2.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

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

  it('B03 a connection whose call waits for its turn here is not quiet, however long the queue', async () => {
    const { connections } = running.gateway;
    const attach = connections.attach.bind(connections);
    connections.attach = (stream) => {
      // After the stream has come, before its turn: as long as behind ten thousand others.
      process.nextTick(() => scheduler.advance(11_000));
      return attach(stream);
    };
    const { agent } = await openAgent({ port: running.port, leaf });
    connections.attach = attach;
    assert.equal(connections.size, 1);
    agent.call.halfClose();
    await agent.call.ended;
    await pass(9_000);
    assert.equal(connections.size, 1);
    await pass(2_000);
    await count(0);
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
  const connectedIdle = async (port: number, count: number): Promise<ReturnType<typeof connect>[]> => {
    const sockets = Array.from({ length: count }, () => connect(port, '127.0.0.1'));
    for (const socket of sockets) socket.on('error', () => undefined).resume();
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    await turns(50);
    return sockets;
  };

  it('runs eight handshakes at a time, and lets the next in when one of those is over', async () => {
    const { gateway, port, authorities } = await startGateway({ scheduler: new ManualScheduler() });
    // Eight that connect and never begin TLS.
    const idle = await connectedIdle(port, 8);
    const late = dialTls({ port, leaf: await nodeLeaf(authorities, 'node-1') });
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
    await gateway.close();
  });

  it('is not shut by those that connect and say nothing: each holds its place for a short lease', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities } = await startGateway({ scheduler });
    const idle = await connectedIdle(port, 40);
    const late = dialTls({ port, leaf: await nodeLeaf(authorities, 'node-1') });
    late.on('error', () => undefined);
    const secured = once(late, 'secureConnect');
    await turns(50);
    for (let lease = 0; lease < 5; lease += 1) {
      scheduler.advance(50);
      // Places that fall free are taken one a turn.
      await turns();
    }
    await secured;
    late.destroy();
    for (const socket of idle) socket.destroy();
    await gateway.close();
  });

  it('drops what waited too long', async () => {
    let now = 0;
    const admitted: Socket[] = [];
    const never = { now: () => now, after: () => () => undefined, every: () => () => undefined };
    const server = createServer({ pauseOnConnect: true });
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    const admission = new Admission({
      slots: 1,
      leaseMs: 50,
      maxOpen: 10,
      maxWaiting: 2,
      waitAtMostMs: 30_000,
      scheduler: never,
      turns: new TurnQueue((fn) => fn()),
      admit: (socket) => void admitted.push(socket),
    });
    server.on('connection', (socket) => admission.offer(socket));
    const clients = await connectedIdle((server.address() as AddressInfo).port, 4);
    await eventually('the one too many is closed', () => clients[3]?.destroyed);
    assert.deepEqual([admitted.length, admission.waiting], [1, 2]);
    now = 30_001;
    admission.finished(admitted[0] as Socket);
    await eventually('both that waited are closed', () => clients[1]?.destroyed === true && clients[2]?.destroyed);
    assert.deepEqual([admission.running, admission.waiting], [0, 0]);
    admission.close();
    for (const client of clients) client.destroy();
    for (const socket of admitted) socket.destroy();
    server.close();
  });

  it('holds a place on when it is this process that is late, and not for a peer that never spoke', async () => {
    let now = 0;
    const leases: (() => void)[] = [];
    const clock = {
      now: () => now,
      after: (_: number, fn: () => void) => (leases.push(fn), () => undefined),
      every: () => () => undefined,
    };
    const admitted: number[] = [];
    const admission = new Admission({
      slots: 1,
      leaseMs: 50,
      maxOpen: 10,
      maxWaiting: 9,
      waitAtMostMs: 30_000,
      scheduler: clock,
      turns: new TurnQueue((fn) => fn()),
      admit: (socket) => void admitted.push(socket.remotePort ?? 0),
    });
    /** A socket as far as the door looks at it. */
    const peer = (port: number, bytesRead: number): Socket =>
      Object.assign(new Duplex({ read: () => undefined }), { remotePort: port, bytesRead }) as unknown as Socket;
    const pass = (ms: number): void => {
      now += ms;
      for (const lease of leases.splice(0)) lease();
    };
    for (const socket of [peer(1, 300), peer(2, 0), peer(3, 300)]) admission.offer(socket);
    pass(100);
    assert.deepEqual(admitted, [1], 'late, and it has spoken: the lease is renewed');
    pass(50);
    assert.deepEqual(admitted, [1, 2], 'in time: the peer is far, not we are busy');
    pass(100);
    assert.deepEqual(admitted, [1, 2, 3], 'silent: no lease is renewed for it');
    admission.close();
  });
});
