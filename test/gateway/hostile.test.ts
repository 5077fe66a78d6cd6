/** Peers with a good certificate and bad intent: what each can cost is bounded, and it costs nobody else anything. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:http2';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { connectionLimits } from '../../gateway/grpc/connections.ts';
import { prefixRefusal } from '../../gateway/grpc/refusals.ts';
import { sessionLimits } from '../../gateway/session/agent-session.ts';
import { outboundLimits } from '../../gateway/session/outbound.ts';
import { AgentFrameSchema, encodeMessage, MessageReader } from '../../proto/index.ts';
import { dial, dialTls, helloFrame, nodeLeaf, openAgent, servicePath, TestAgent, TestCall, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { trustOf } from './memory-store.ts';
import { frameTypes, grpcPrefixed, h2Frame, headerBlock, RawConnection, type RawEvents, sessionHeaders } from './raw-h2.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

const hello = grpcPrefixed(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'));
const beat = grpcPrefixed(encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame'));

describe('hostile peers', function () {
  this.timeout(60_000);
  let running: RunningGateway;
  let scheduler: ManualScheduler;
  let leaf: TestLeaf;
  let witness: TestAgent;
  let nodes = 0;
  before(async () => {
    scheduler = new ManualScheduler();
    running = await startGateway({ scheduler });
    ({ agent: witness } = await openAgent({ port: running.port, leaf: await nodeLeaf(running.authorities, 'witness') }));
  });
  beforeEach(async () => {
    nodes += 1;
    leaf = await nodeLeaf(running.authorities, `hostile-${nodes}`);
  });
  afterEach('an honest session beside it still works', async () => {
    witness.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
    await witness.until('heartbeatAck');
    await eventually('the hostile connection is gone', () => running.gateway.connections.size === 1);
    assert.equal(running.gateway.sessions.size, 1);
  });
  after(async () => {
    witness.close();
    await running.gateway.close();
  });

  const raw = async (events: RawEvents = {}, options: ConstructorParameters<typeof RawConnection>[2] = {}): Promise<RawConnection> => {
    const socket = dialTls({ port: running.port, leaf });
    await once(socket, 'secureConnect');
    const connection = new RawConnection(socket, events, options);
    connection.start();
    return connection;
  };
  const closed = (connection: RawConnection): Promise<unknown> =>
    connection.socket.destroyed ? Promise.resolve() : once(connection.socket, 'close');
  const pass = async (ms: number): Promise<void> => {
    for (let second = 0; second < ms; second += 1_000) {
      scheduler.advance(1_000);
      witness.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
      await witness.until('heartbeatAck');
      await turns(3);
    }
  };

  it('B29 a peer that never reads: what is queued for it stays under the budget, and then its session ends', async () => {
    const codes: number[] = [];
    const greedy = await raw({ onReset: (_, reason) => void codes.push(reason) }, { givesCredit: false });
    const stream = greedy.open();
    greedy.data(stream, hello);
    await eventually('the session is open', () => running.gateway.sessions.size === 2);
    const session = [...running.gateway.sessions.current()].find(({ nodeId }) => nodeId.startsWith('hostile'));
    assert.ok(session !== undefined);
    let mostQueued = 0;
    for (let version = 2; codes.length === 0 && version < 28; version += 1) {
      greedy.data(stream, beat);
      running.store.trust = { ...trustOf(version), body: new Uint8Array(250_000) };
      await pass(1_000);
      mostQueued = Math.max(mostQueued, session.queuedBytes);
    }
    running.store.trust = { ...trustOf(28), body: new Uint8Array() };
    assert.equal(codes[0], constants.NGHTTP2_ENHANCE_YOUR_CALM, 'clients read it as RESOURCE_EXHAUSTED');
    assert.ok(mostQueued > outboundLimits.budgetBytes - 300_000 && mostQueued <= outboundLimits.budgetBytes, String(mostQueued));
    assert.equal(running.store.openOf(session.nodeId), undefined);
    greedy.socket.destroy();
  });

  it('B06 a peer that takes nothing off its socket: its connection is gone within a minute, last writes or not', async () => {
    const stuck = await raw({}, { isPolite: false, givesCredit: false });
    const most = Buffer.alloc(4);
    most.writeUInt32BE(0x7fff_0000);
    stuck.frame({ type: frameTypes.settings, flags: 0, streamId: 0 }, Buffer.concat([Buffer.from([0, 4]), most]));
    stuck.frame({ type: frameTypes.windowUpdate, flags: 0, streamId: 0 }, most);
    const stream = stuck.open();
    stuck.data(stream, hello);
    await eventually('the session is open', () => running.gateway.sessions.size === 2);
    stuck.socket.pause();
    for (let version = 30; version < 70; version += 1) {
      running.store.trust = { ...trustOf(version), body: new Uint8Array(250_000) };
      await pass(1_000);
    }
    running.store.trust = { ...trustOf(70), body: new Uint8Array() };
    await pass(30_000);
    assert.equal(running.gateway.connections.size, 1);
    stuck.socket.destroy();
  });

  it('commands wait for a peer that reads slowly, below the budget', async () => {
    const slow = await raw({}, { givesCredit: false });
    const name = `hostile-${nodes}`;
    for (let at = 0; at < 16; at += 1) running.store.enqueue(name, { id: `${name}-${at}`, bytes: 900_000 });
    const stream = slow.open();
    slow.data(stream, hello);
    await eventually('the session is open', () => running.gateway.sessions.size === 2);
    const session = [...running.gateway.sessions.current()].find(({ nodeId }) => nodeId === name);
    assert.ok(session !== undefined);
    running.gateway.sessions.poke('sweep');
    await turns(50);
    assert.ok(session.queuedBytes < outboundLimits.backlogBytes + 1_100_000, String(session.queuedBytes));
    assert.equal(session.core.phase, 'open');
    await pass(33_000);
    assert.equal(session.endReason, 'send-budget', 'a queue that moves no byte for 30 s is cut');
    slow.socket.destroy();
  });

  it('reads a flood more slowly, and answers all of it', async () => {
    let answers = 0;
    const reader = new MessageReader(outboundLimits.budgetBytes, prefixRefusal);
    const sink = { onMessage: () => void (answers += 1) };
    const flooding = await raw({ onData: (_, payload) => reader.push(payload, sink) });
    const stream = flooding.open();
    flooding.data(stream, hello);
    await eventually('the session is open', () => running.gateway.sessions.size === 2);
    answers = 0;
    const frames = sessionLimits.framesPerSweep * 2;
    flooding.socket.write(
      Buffer.concat(
        Array.from({ length: frames / 100 }, () =>
          h2Frame({ type: frameTypes.data, flags: 0, streamId: stream }, Buffer.concat(Array.from({ length: 100 }, () => beat))),
        ),
      ),
    );
    await turns(300);
    const beforeSweep = answers;
    assert.ok(beforeSweep > 0 && beforeSweep < frames, `${beforeSweep} of ${frames} before a second passed`);
    await eventually('all are answered', async () => {
      await pass(1_000);
      return answers >= frames;
    });
    flooding.socket.destroy();
  });

  it('half a prefix, half a frame, then silence: gone at the Hello deadline', async () => {
    const torn = await raw();
    torn.data(torn.open(), Buffer.from([0, 0]));
    const cut = await raw();
    cut.socket.write(h2Frame({ type: frameTypes.data, flags: 0, streamId: 1 }, hello).subarray(0, 12));
    await eventually('both are there', () => running.gateway.connections.size === 3);
    await pass(25_000);
    await Promise.all([closed(torn), closed(cut)]);
  });

  it('rapid reset: the connection is cut long before the limiter of nghttp2', async () => {
    let goaway: number | null = null;
    const resetting = await raw({ onGoaway: (code) => void (goaway ??= code) });
    let opened = 0;
    for (; opened < 1_000 && !resetting.socket.destroyed; opened += 1) {
      resetting.reset(resetting.open());
      if (opened % 10 === 9) await turns(2);
    }
    await closed(resetting);
    assert.equal(goaway, constants.NGHTTP2_ENHANCE_YOUR_CALM);
    assert.ok(opened < connectionLimits.resetBudget * 6, String(opened));
  });

  it('B14 streams above the limit, and refused streams, use up the same budget', async () => {
    const over = await raw();
    for (let opened = 0; opened < 10_000 && !over.socket.destroyed; opened += 1) {
      over.open();
      if (opened % 50 === 49) await turns(2);
    }
    await closed(over);
    let goaway: number | null = null;
    const wrong = await raw({ onGoaway: (code) => void (goaway ??= code) });
    for (let opened = 0; opened < 1_000 && !wrong.socket.destroyed; opened += 1) {
      wrong.open({ ...sessionHeaders, ':path': '/nothing' }, { endStream: true });
      await turns(1);
    }
    await closed(wrong);
    assert.equal(goaway, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });

  it('63 KB of header, and headers that never end, are refused and never crash', async () => {
    const big = await raw();
    big.frame({ type: frameTypes.headers, flags: 4, streamId: 1 }, headerBlock({ ...sessionHeaders, 'x-big': 'X'.repeat(15_000) }));
    big.frame({ type: frameTypes.headers, flags: 0, streamId: 3 }, headerBlock({ ...sessionHeaders, 'x-big': 'X'.repeat(15_000) }));
    for (let more = 0; more < 20 && !big.socket.destroyed; more += 1) {
      big.frame({ type: frameTypes.continuation, flags: 0, streamId: 3 }, headerBlock({ [`x-${more}`]: 'X'.repeat(15_000) }));
      await turns(2);
    }
    await pass(25_000);
    await closed(big);
  });

  it('no HTTP/2 at all: garbage after TLS, HTTP/1 after TLS, plain text instead of TLS', async () => {
    for (const bytes of [Buffer.from('GET / HTTP/1.1\r\n\r\n'), Buffer.alloc(5_000, 0xff)]) {
      const socket = dialTls({ port: running.port, leaf });
      socket.on('error', () => undefined);
      await once(socket, 'secureConnect');
      socket.write(bytes);
      socket.resume();
      await once(socket, 'close');
    }
    const plain = connect(running.port, '127.0.0.1');
    plain.on('error', () => undefined);
    plain.write('hello\r\n');
    plain.resume();
    await once(plain, 'close');
  });

  it('a length above the bound ends the stream before a byte of the message was sent', async () => {
    const agent = new TestAgent({ port: running.port, leaf });
    agent.call.write(Buffer.from([0, 0xff, 0xff, 0xff, 0xff]));
    assert.equal((await agent.ended).reason, 'frame-too-large');
    agent.close();
    const { agent: later } = await openAgent({ port: running.port, leaf });
    later.call.write(Buffer.concat([Buffer.from([0, 0, 0x40, 0, 1]), Buffer.alloc(60_000)]));
    assert.equal((await later.ended).reason, 'frame-too-large');
    later.close();
  });

  it('B01, B24 leaves nothing behind of connections, sessions and calls that came and went', async () => {
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => void warnings.push(`${warning.name}: ${warning.message}`);
    process.on('warning', onWarning);
    for (let round = 0; round < 25; round += 1) {
      const { agent } = await openAgent({ port: running.port, leaf });
      agent.close();
    }
    const session = dial({ port: running.port, leaf });
    for (let call = 0; call < 200; call += 1) {
      const unary = new TestCall(session, `${servicePath}/Join`);
      unary.send(Buffer.from('x'));
      unary.halfClose();
      assert.equal((await unary.ended).status, 0);
    }
    session.destroy();
    await eventually(
      'all are gone',
      () => running.gateway.connections.size === 1 && running.store.openOf(`hostile-${nodes}`) === undefined,
    );
    process.off('warning', onWarning);
    assert.deepEqual(warnings, []);
  });

  it('cancel before and after the first answer frees the session row', async () => {
    for (const waits of [false, true]) {
      const agent = new TestAgent({ port: running.port, leaf });
      agent.hello();
      if (waits) await agent.expect('welcome');
      agent.call.stream.close(constants.NGHTTP2_CANCEL);
      await agent.ended;
      await eventually('the row is ended', () => running.store.openOf(`hostile-${nodes}`) === undefined);
      agent.close();
    }
  });
});

describe('a gateway under random destruction', function () {
  this.timeout(120_000);

  it('B06, B07 stalls, writes and destroys in random order, at every step of the handshake, and ends with 0', async () => {
    const path = fileURLToPath(new URL(`./fuzz-child${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url));
    const child = spawn(process.execPath, [...(path.endsWith('.ts') ? ['--import', 'tsx'] : []), '--trace-warnings', path, '120', '7'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const output: string[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => void output.push(String(chunk)));
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, output.join(''));
    assert.match(output.join(''), /^survived 120 peers\n$/);
  });
});
