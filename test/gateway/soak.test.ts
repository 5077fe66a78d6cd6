/**
 * Connections that come, reset, are reset, are cut and go, for as long as it takes to see a leak: of the very Node build that runs it,
 * because a patch release of Node has brought one before.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { minute } from '../../domain/time.ts';
import { AgentFrameSchema, encodeMessage } from '../../proto/index.ts';
import { dialTls, helloFrame, nodeLeaf, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { grpcPrefixed, RawConnection, sessionHeaders } from './raw-h2.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

const isNightly = process.env['BC_TEST_NIGHTLY'] === '1';
const mebibyte = 1024 * 1024;

setFlagsFromString('--expose_gc');
const collect = runInNewContext('gc') as () => void;

async function heldBytes(): Promise<number> {
  await turns(20);
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const hello = grpcPrefixed(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'));

describe('a soak', function () {
  this.timeout(15 * minute);
  let running: RunningGateway;
  const scheduler = new ManualScheduler();
  let leaf: TestLeaf;
  before(async () => {
    running = await startGateway({ scheduler });
    leaf = await nodeLeaf(running.authorities, 'node-1');
  });
  after(() => running.gateway.close());

  /** One life of a connection; its number decides how it goes. */
  async function life(n: number): Promise<void> {
    const socket = dialTls({ port: running.port, leaf });
    await once(socket, 'secureConnect');
    const connection = new RawConnection(socket);
    connection.start();
    const session = connection.open();
    connection.data(session, hello);
    // The gateway resets these (an unknown method), the client those: within the budget of a connection.
    for (let stream = 0; stream < 4; stream += 1) connection.open({ ...sessionHeaders, ':path': '/nothing' });
    for (let stream = 0; stream < 4; stream += 1) connection.reset(connection.open());
    await turns(3);
    if (n % 3 === 0) connection.reset(session);
    if (n % 3 === 1) connection.data(session, new Uint8Array(), true);
    // What is left is cut in the middle of whatever happens.
    socket.destroy();
  }

  const gone = (): Promise<true> =>
    eventually('every connection and session is gone', () => {
      scheduler.advance(1_000);
      return isEmpty(running);
    });

  async function lives(from: number, until: (n: number) => boolean): Promise<number> {
    let n = from;
    for (; !until(n); n += 1) {
      await life(n);
      if (n % 50 === 49) await gone();
    }
    await gone();
    return n;
  }

  it(`B10 ${isNightly ? 'ten minutes' : '200 lives'} of resets and cuts leave no connection, no socket and no memory behind`, async () => {
    await lives(0, (n) => n >= 60);
    const before = { bytes: await heldBytes(), sockets: openSockets() };
    const endMs = performance.now() + 10 * minute;
    const done = await lives(60, (n) => (isNightly ? performance.now() > endMs : n >= 260));
    const grown = (await heldBytes()) - before.bytes;
    assert.ok(done >= 260, String(done));
    assert.ok(grown < 6 * mebibyte, `${Math.round(grown / 1024)} KiB more after ${done - 60} connections on Node ${process.version}`);
    assert.ok(openSockets() <= before.sockets, `${openSockets()} sockets, ${before.sockets} before`);
  });
});

const isEmpty = ({ gateway }: RunningGateway): boolean => gateway.connections.size === 0 && gateway.sessions.size === 0;

const openSockets = (): number => process.getActiveResourcesInfo().filter((name) => /TLS|TCPSocket/.test(name)).length;
