/** What lives long or is used often must not grow: one stream, one connection, a connection that never reads. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { prefixRefusal } from '../../gateway/grpc/refusals.ts';
import { AgentFrameSchema, encodeMessage, MessageReader } from '../../proto/index.ts';
import { dial, dialTls, helloFrame, nodeLeaf, servicePath, TestCall, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { frameTypes, grpcPrefixed, h2Frame, headerBlock, RawConnection, type RawEvents, sessionHeaders } from './raw-h2.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

const isNightly = process.env['BC_TEST_NIGHTLY'] === '1';
const mebibyte = 1024 * 1024;

setFlagsFromString('--expose_gc');
const collect = runInNewContext('gc') as () => void;

/** What is really held, once garbage is gone. */
async function heldBytes(): Promise<number> {
  await turns(20);
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

describe('long lives', function () {
  this.timeout(isNightly ? 600_000 : 60_000);
  let running: RunningGateway;
  let scheduler: ManualScheduler;
  let leaf: TestLeaf;
  before(async () => {
    scheduler = new ManualScheduler();
    running = await startGateway({ scheduler });
    leaf = await nodeLeaf(running.authorities, 'node-1');
  });
  after(() => running.gateway.close());

  const raw = async (events: RawEvents, options: ConstructorParameters<typeof RawConnection>[2] = {}): Promise<RawConnection> => {
    const socket = dialTls({ port: running.port, leaf });
    await once(socket, 'secureConnect');
    const connection = new RawConnection(socket, events, options);
    connection.start();
    return connection;
  };

  const frames = isNightly ? 1_000_000 : 50_000;
  it(`B19 ${frames} frames on one stream leave nothing behind`, async () => {
    const seen = { answers: 0 };
    const reader = new MessageReader(64 * 1024, prefixRefusal);
    const sink = { onMessage: () => void (seen.answers += 1) };
    const connection = await raw({ onData: (_, payload) => reader.push(payload, sink) });
    const stream = connection.open();
    connection.data(stream, grpcPrefixed(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame')));
    await eventually('welcome', () => seen.answers === 1);
    const perBatch = 1_000;
    const beat = grpcPrefixed(encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame'));
    const batch = h2Frame(
      { type: frameTypes.data, flags: 0, streamId: stream },
      Buffer.concat(Array.from({ length: perBatch }, () => beat)),
    );
    const send = async (count: number): Promise<void> => {
      for (let sent = 0; sent < count; sent += perBatch) {
        const wanted = seen.answers + perBatch;
        connection.socket.write(batch);
        while (seen.answers < wanted) {
          await turns(1);
          scheduler.advance(5);
        }
      }
    };
    await send(20_000);
    const before = await heldBytes();
    await send(frames);
    const grown = (await heldBytes()) - before;
    assert.ok(grown < 4 * mebibyte, `${Math.round(grown / 1024)} KiB more after ${frames} frames`);
    assert.equal(running.gateway.sessions.size, 1);
    connection.socket.destroy();
    await eventually('gone', () => running.gateway.connections.size === 0);
  });

  const calls = isNightly ? 100_000 : 4_000;
  it(`B11 ${calls} calls one after another on one connection: none is refused, and nothing stays`, async () => {
    const session = dial({ port: running.port, leaf: null });
    const call = async (): Promise<void> => {
      const one = new TestCall(session, `${servicePath}/Join`);
      one.send(Buffer.from('x'));
      one.halfClose();
      const { status, message } = await one.ended;
      assert.equal(status, 0, message);
    };
    for (let n = 0; n < 500; n += 1) await call();
    const before = await heldBytes();
    for (let n = 0; n < calls; n += 1) await call();
    const grown = (await heldBytes()) - before;
    assert.ok(grown < 4 * mebibyte, `${Math.round(grown / 1024)} KiB more after ${calls} calls`);
    assert.equal(running.gateway.connections.size, 1);
    session.destroy();
    await eventually('gone', () => running.gateway.connections.size === 0);
  });

  it('B15 200 streams with 60 KB of header each, of a peer that reads nothing: cut, and what they held is given back', async () => {
    const before = await heldBytes();
    await flood(await raw({}, { givesCredit: false }));
    await eventually('the connection is gone', () => running.gateway.connections.size === 0);
    await eventually('what it held is given back', async () => (await heldBytes()) - before < 4 * mebibyte);
  });

  async function flood(connection: RawConnection): Promise<void> {
    for (let stream = 1; stream < 400 && !connection.socket.destroyed; stream += 2) {
      connection.frame(
        { type: frameTypes.headers, flags: 0, streamId: stream },
        headerBlock({ ...sessionHeaders, 'x-1': 'X'.repeat(15_000) }),
      );
      for (let more = 2; more <= 4; more += 1)
        connection.frame(
          { type: frameTypes.continuation, flags: more === 4 ? 4 : 0, streamId: stream },
          headerBlock({ [`x-${more}`]: 'X'.repeat(15_000) }),
        );
      await turns(1);
    }
    for (let second = 0; second < 30 && running.gateway.connections.size > 0; second += 1) {
      scheduler.advance(1_000);
      await turns(5);
    }
    assert.ok(connection.socket.destroyed || running.gateway.connections.size === 0);
  }
});
