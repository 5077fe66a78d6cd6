/** Workload tokens through a gateway over real TLS: the question and its answer beside the frames, and what the gateway says by itself. */
import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { relayLimits } from '../../gateway/session/broker-relay.ts';
import { refuseWorkloadTokenRequest } from '../../pki/workload/index.ts';
import { bounds, CommandOutcome, WorkloadTokenRequestSchema, WorkloadTokenResponseSchema } from '../../proto/index.ts';
import { nodeLeaf, openAgent, type TestLeaf } from '../harness/agent.ts';
import { digestOf, MemoryStore } from './memory-store.ts';
import { noServices, type RunningGateway, startGateway } from './start-gateway.ts';

type Ask = { readonly bytes: Uint8Array; readonly chain: readonly Uint8Array[]; answer(bytes: Uint8Array): void; fail(error: Error): void };

describe('workload tokens through a gateway', () => {
  let running: RunningGateway;
  let leaf: TestLeaf;
  let asked: Ask[];
  let waiting: ((ask: Ask) => void)[];

  /** The next question that reaches the broker. */
  const next = (): Promise<Ask> =>
    new Promise((resolve) => void (asked.length > 0 ? resolve(asked.shift() as Ask) : waiting.push(resolve)));

  const broker = {
    ...noServices,
    workloadToken: (bytes: Uint8Array, { chain }: { readonly chain: readonly Uint8Array[] }) =>
      new Promise<Uint8Array>((answer, fail) => {
        const ask = { bytes, chain, answer, fail };
        const taker = waiting.shift();
        if (taker === undefined) asked.push(ask);
        else taker(ask);
      }),
  };

  before(async () => {
    running = await startGateway({ services: broker });
    leaf = await nodeLeaf(running.authorities, 'node-1');
  });
  after(() => running.gateway.close());
  beforeEach(() => {
    [asked, waiting] = [[], []];
  });

  const question = (requestId: string) =>
    create(WorkloadTokenRequestSchema, { requestId, instanceId: 'i-1', audience: 'a', epk: Uint8Array.of(4, 5) });
  const frameOf = (requestId: string) => ({ frame: { case: 'workloadTokenRequest' as const, value: question(requestId) } });
  const boxFor = (requestId: string) =>
    toBinary(WorkloadTokenResponseSchema, create(WorkloadTokenResponseSchema, { requestId, jwe: 'a.b.c.d.e', expiresAt: 7n }));

  it('WID-033 carries the question with the proven chain to the broker, and its answer back as it is', async () => {
    const { agent } = await openAgent({ port: running.port, leaf });
    agent.send(frameOf('r-1'));
    const ask = await next();
    assert.deepEqual(fromBinary(WorkloadTokenRequestSchema, ask.bytes), question('r-1'));
    assert.deepEqual(Buffer.from(ask.chain[0] as Uint8Array), Buffer.from(leaf.chain[0] as Uint8Array));
    ask.answer(boxFor('r-1'));
    const { jwe, expiresAt, error, requestId } = await agent.expect('workloadTokenResponse');
    assert.deepEqual([requestId, jwe, expiresAt, error], ['r-1', 'a.b.c.d.e', 7n, '']);
    agent.close();
  });

  it('WID-033 is beside the frames: a record that hangs delays no answer, and a question that hangs delays no frame', async () => {
    const store = new MemoryStore();
    let release: () => void = () => undefined;
    const hangs = new Promise<void>((resolve) => {
      release = resolve;
    });
    const record = store.record.bind(store);
    store.record = async (batch) => {
      await hangs;
      return record(batch);
    };
    const other = await startGateway({ services: broker, store, authorities: running.authorities });
    const command = store.enqueue('node-1', { id: 'first' });
    const { agent } = await openAgent({ port: other.port, leaf });
    const { seq } = await agent.expect('command');
    agent.send({
      frame: {
        case: 'commandResult',
        value: { commandId: 'first', seq, outcome: CommandOutcome.SUCCEEDED, bodySha256: digestOf(command.body) },
      },
    });
    agent.send(frameOf('r-2'));
    (await next()).answer(boxFor('r-2'));
    assert.equal((await agent.expect('workloadTokenResponse')).requestId, 'r-2');
    agent.send(frameOf('r-3'));
    const stuck = await next();
    release();
    assert.equal((await agent.expect('resultReceipt')).commandId, 'first');
    stuck.answer(boxFor('r-3'));
    assert.equal((await agent.expect('workloadTokenResponse')).requestId, 'r-3');
    agent.close();
    await other.gateway.close();
  });

  it('WID-037 answers unavailable without the service, when it fails, and when its answer is to something else', async () => {
    const bare = await startGateway({ authorities: running.authorities });
    const { agent } = await openAgent({ port: bare.port, leaf });
    agent.send(frameOf('r-4'));
    const answer = await agent.expect('workloadTokenResponse');
    assert.deepEqual([answer.requestId, answer.error, answer.jwe], ['r-4', 'unavailable', '']);
    agent.close();
    await bare.gateway.close();
    const second = (await openAgent({ port: running.port, leaf })).agent;
    const ends: ((ask: Ask) => void)[] = [
      (ask) => ask.fail(new Error('the api is away')),
      (ask) => ask.answer(boxFor('r-other')),
      (ask) => ask.answer(Uint8Array.of(255)),
      (ask) => ask.answer(new Uint8Array(bounds.workloadTokenResponse + 1)),
    ];
    for (const end of ends) {
      second.send(frameOf('r-5'));
      end(await next());
      assert.equal((await second.expect('workloadTokenResponse')).error, 'unavailable');
    }
    second.close();
  });

  it('WID-038 answers access-denied to a session that a tenant controls, and asks nobody', async () => {
    const tenant = await nodeLeaf(running.authorities, 'tenant-1', { profile: 'nodeTenant' });
    const { agent } = await openAgent({ port: running.port, leaf: tenant });
    agent.send(frameOf('r-6'));
    assert.equal((await agent.expect('workloadTokenResponse')).error, 'access-denied');
    assert.equal(asked.length, 0);
    agent.close();
  });

  it("WID-036 passes the broker's word on, and says rate-limited to a session that has too many under way", async () => {
    const { agent } = await openAgent({ port: running.port, leaf });
    for (let at = 0; at <= relayLimits.workloadTokenRequest.perSession; at++) agent.send(frameOf(`r-${at}`));
    const refused = await agent.expect('workloadTokenResponse');
    assert.deepEqual([refused.requestId, refused.error], [`r-${relayLimits.workloadTokenRequest.perSession}`, 'rate-limited']);
    for (let at = 0; at < relayLimits.workloadTokenRequest.perSession; at++)
      (await next()).answer(refuseWorkloadTokenRequest(`r-${at}`, 'not-bound'));
    for (let at = 0; at < relayLimits.workloadTokenRequest.perSession; at++)
      assert.equal((await agent.expect('workloadTokenResponse')).error, 'not-bound');
    agent.send(frameOf('r-again'));
    (await next()).answer(boxFor('r-again'));
    assert.equal((await agent.expect('workloadTokenResponse')).error, '', 'there is room again');
    agent.close();
  });

  it('an answer that comes when the session is gone goes nowhere', async () => {
    const { agent } = await openAgent({ port: running.port, leaf });
    agent.send(frameOf('r-7'));
    const ask = await next();
    agent.call.halfClose();
    await agent.ended;
    agent.close();
    ask.answer(boxFor('r-7'));
    const again = (await openAgent({ port: running.port, leaf })).agent;
    again.send(frameOf('r-8'));
    (await next()).answer(boxFor('r-8'));
    assert.equal((await again.expect('workloadTokenResponse')).requestId, 'r-8');
    again.close();
  });
});
