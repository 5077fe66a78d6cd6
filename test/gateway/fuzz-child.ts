/** A gateway and peers that are destroyed at random moments, by themselves and by the gateway. Its exit code is the verdict. */
import { connect, type Socket } from 'node:net';
import { AgentFrameSchema, encodeMessage } from '../../proto/index.ts';
import { dialTls, helloFrame, nodeLeaf, type TestLeaf } from '../harness/agent.ts';
import { grpcPrefixed, RawConnection } from './raw-h2.ts';
import { startGateway } from './start-gateway.ts';

/** Repeatable: the seed is an argument. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const peers = Number(process.argv[2] ?? 100);
const random = createRandom(Number(process.argv[3] ?? 1));
const below = (limit: number): number => Math.floor(random() * limit);
const hello = grpcPrefixed(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'));
const beat = grpcPrefixed(encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame'));

const { gateway, port, authorities, store } = await startGateway();
const leaves: TestLeaf[] = [];
for (let at = 0; at < 10; at += 1) leaves.push(await nodeLeaf(authorities, `node-${at}`));

const wait = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

/** Cut off within the handshake: some bytes of it may have been sent. */
async function halfHandshake(): Promise<void> {
  const socket: Socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.write(Buffer.from([22, 3, 1, 0, below(200), 1, 0]));
  await wait(below(5));
  socket.destroy();
}

const acts: readonly ((connection: RawConnection, stream: number) => void)[] = [
  ({ socket }) => void socket.pause(),
  ({ socket }) => void socket.resume(),
  ({ socket }) => void socket.destroy(),
  ({ socket }) => void socket.end(),
  (connection, stream) => connection.data(stream, beat),
  (connection, stream) => connection.reset(stream),
  (connection) => void connection.open(),
  (connection, stream) => connection.data(stream, Buffer.from([0, 0, 0])),
  (connection, stream) => connection.data(stream, new Uint8Array(), true),
  (connection) => connection.frame({ type: 8, flags: 0, streamId: 0 }, Buffer.from([0, 0, 0, 0])),
  () => gateway.sessions.poke('sweep'),
  () => [...gateway.sessions.current()].at(below(5))?.stream.session?.destroy(),
  () => [...gateway.sessions.current()].at(below(5))?.onFenced(),
];

async function peer(): Promise<void> {
  if (below(4) === 0) return halfHandshake();
  const socket = dialTls({ port, leaf: leaves[below(leaves.length)] as TestLeaf });
  socket.on('error', () => undefined);
  if (below(5) === 0) return void setTimeout(() => socket.destroy(), below(10));
  await new Promise<void>((resolve) => {
    socket.once('secureConnect', resolve);
    socket.once('close', () => resolve());
  });
  if (socket.destroyed) return;
  const connection = new RawConnection(socket, {}, { isPolite: below(3) > 0, givesCredit: below(3) > 0 });
  connection.start();
  const stream = connection.open();
  if (below(4) > 0) connection.data(stream, hello);
  for (let step = 0; step < 12 && !socket.destroyed; step += 1) {
    acts[below(acts.length)]?.(connection, stream);
    if (below(3) === 0) await wait(below(4));
  }
  socket.destroy();
}

for (let at = 0; at < 10; at += 1)
  for (let many = 0; many < 20; many += 1) store.enqueue(`node-${at}`, { id: `c-${at}-${many}`, bytes: 20_000 });
let left = peers;
await Promise.all(
  Array.from({ length: 8 }, async () => {
    while (left > 0) {
      left -= 1;
      await peer();
    }
  }),
);
await gateway.close();
console.log(`survived ${peers} peers`);
process.exit(gateway.connections.size === 0 ? 0 : 1);
