import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { sessionTiming } from '../../daemon/transport/session-stream.ts';
import { second } from '../../domain/time.ts';
import { desiredStateFromStored, storedDesiredState } from '../../pki/envelope/index.ts';
import { CommandOutcome, CommandRejectReason, type Hello, NodeSpecSchema } from '../../proto/index.ts';
import { commandOf } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';

import { setStage } from './stage.ts';

describe('a session of the daemon', () => {
  const stage = setStage();

  it('ROT-015 SKEW-001 FRM-001 FRM-008 says first what it is, what it speaks and which trust version it holds', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url, { node: { trust: { version: 7, roots: [stage.deployment.rootA] } } });
    const { hello, headers, frames } = await gateway.nextSession();
    assert.equal(frames[0]?.frame.case, 'hello');
    assert.equal(hello?.trustVersion, 7n);
    assert.deepEqual([hello?.protoMin, hello?.protoMax], [1, 1]);
    assert.equal(hello?.role, 'node');
    assert.match(hello?.daemonVersion ?? '', /^\d+\.\d+\.\d+/);
    assert.ok(hello?.capabilities.includes('inventory.refresh'));
    assert.equal(headers['te'], 'trailers', 'B28: without it proxies drop the status');
    assert.equal(headers['content-type'], 'application/grpc+proto');
  });

  it('delivery rules 4 and 5: acknowledges, runs, answers; a redelivery runs nothing again and gets the same answer', async () => {
    const gateway = await stage.gatewayWith({ confirmsResults: false });
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    const command = await commandOf(stage.deployment, { id: 'c-1', seq: 9n });
    session.send({ frame: { case: 'command', value: command } });
    const ack = await session.take('commandAck');
    assert.deepEqual([ack.commandId, ack.seq], ['c-1', 9n]);
    const result = await session.take('commandResult');
    assert.equal(result.outcome, CommandOutcome.SUCCEEDED);
    assert.equal(result.payload?.typeUrl, 'type.googleapis.com/bettercompute.agent.v1.InventoryReport');

    session.send({ frame: { case: 'command', value: command } });
    assert.equal((await session.take('commandAck')).commandId, 'c-1');
    assert.deepEqual(await session.take('commandResult'), result);

    session.send({ frame: { case: 'resultReceipt', value: { commandId: 'c-1' } } });
    session.send({ frame: { case: 'command', value: command } });
    const after = await session.take('commandResult');
    assert.equal(after.outcome, CommandOutcome.SUCCEEDED);
    assert.equal(after.payload, undefined, 'a confirmed payload is not kept');
    assert.equal(member.effects.get('c-1'), 1);
  });

  it('passes over a workload token that nobody asked for, and works on', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    session.send({ frame: { case: 'workloadTokenResponse', value: { requestId: 'r-1', jwe: 'a.b.c.d.e', expiresAt: 1n } } });
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-after', seq: 1n }) } });
    assert.equal((await session.take('commandResult')).commandId, 'c-after');
  });

  it('reports its status as often as its desired state asks, with a heartbeat, and no oftener', async () => {
    const at = { wallMs: Date.now(), steadyMs: 1_000 };
    const gateway = await stage.gatewayWith({ welcome: () => ({ heartbeatIntervalMs: 20 }) });
    await stage.daemonAt(gateway.url, { source: { wallMs: () => at.wallMs, steadyMs: () => at.steadyMs } });
    const session = await gateway.nextSession();
    const { trustDomain, workerA } = stage.deployment;
    const spec = toBinary(NodeSpecSchema, create(NodeSpecSchema, { daemon: { statusIntervalSeconds: 60 } }));
    await session.take('status');
    const stored = await storedDesiredState(workerA, { nodeId: 'node-1', generation: 1, trustDomain, spec });
    session.send({ frame: { case: 'desiredState', value: desiredStateFromStored(stored) } });
    const taken = await session.take('status');
    assert.equal(taken.specGeneration, 1n);
    const statusesAfterBeats = async (count: number): Promise<number> => {
      const from = session.frames.length;
      await eventually('beats', () => session.frames.slice(from).filter(({ frame }) => frame.case === 'heartbeat').length >= count);
      return session.frames.slice(from).filter(({ frame }) => frame.case === 'status').length;
    };
    at.steadyMs += 59_999;
    assert.equal(await statusesAfterBeats(2), 0);
    at.steadyMs += 1;
    assert.equal(await statusesAfterBeats(2), 1);
  });

  it('sends a result again in the next session until its receipt comes', async () => {
    const gateway = await stage.gatewayWith({ confirmsResults: false });
    await stage.daemonAt(gateway.url);
    const first = await gateway.nextSession();
    first.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-2' }) } });
    await first.take('commandResult');
    gateway.cut();
    const second = await gateway.nextSession();
    assert.equal((await second.take('commandResult')).commandId, 'c-2');
    second.send({ frame: { case: 'resultReceipt', value: { commandId: 'c-2' } } });
    second.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-3', epoch: 2n }) } });
    assert.equal((await second.take('commandResult')).commandId, 'c-3');
    gateway.cut();
    const third = await gateway.nextSession();
    assert.equal((await third.take('commandResult')).commandId, 'c-3', 'c-2 was confirmed and does not come again');
  });

  it('delivery rule 5 a command on two overlapping sessions at once is accepted once, and the daemon goes on', async () => {
    const durable: (() => void)[] = [];
    const epochs = [1n];
    const gateway = await stage.gatewayWith({ welcome: () => (epochs.length > 0 ? { epoch: epochs.shift() ?? 1n } : null) });
    const member = await stage.daemonAt(gateway.url, {
      journalStorage: {
        append: () => new Promise((resolve) => durable.push(resolve)),
        replaceAll: async () => undefined,
        isLong: () => false,
        close: async () => undefined,
      },
    });
    const makeDurable = async (): Promise<void> => {
      await eventually('a record is being written', () => durable.length > 0);
      durable.shift()?.();
    };
    const former = await gateway.nextSession();
    await former.take('status');
    former.send({ frame: { case: 'drain', value: { afterMs: 0, windowMs: 0, reason: 'restart' } } });
    const next = await gateway.nextSession();
    const command = await commandOf(stage.deployment, { id: 'twice', epoch: 1n });
    former.send({ frame: { case: 'command', value: command } });
    await eventually('the first delivery is being written', () => durable.length === 1);
    const welcome = { epoch: 1n, protocolVersion: 1, gatewayId: 'hostile', serverTimeMs: BigInt(Date.now()), heartbeatIntervalMs: 60_000 };
    next.send({ frame: { case: 'welcome', value: welcome } });
    next.send({ frame: { case: 'command', value: command } });
    // A frame behind the command that is answered without waiting for the journal: the second delivery has been read by then.
    await next.take('status');
    await makeDurable();
    assert.equal((await next.take('commandAck')).commandId, 'twice');
    await makeDurable();
    await makeDurable();
    assert.equal((await next.take('commandResult')).commandId, 'twice');
    await makeDurable();
    assert.equal(member.effects.get('twice'), 1);
    next.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'after', epoch: 1n }) } });
    await makeDurable();
    assert.equal((await next.take('commandAck')).commandId, 'after', 'it goes on');
    await makeDurable();
    await makeDurable();
    assert.equal((await next.take('commandResult')).commandId, 'after');
    await makeDurable();
    assert.equal(durable.length, 0);
  });

  it('a command that is to take a step out of order is said and left, and the daemon goes on', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-1' }) } });
    await session.take('commandResult');
    const { journal, executor } = member.agent.state;
    await eventually('confirmed', () => journal.find('c-1')?.state === 'receipted');
    const { body } = await commandOf(stage.deployment, { id: 'c-1' });
    executor.submit({ id: 'c-1', kind: 'inventory.refresh', digest: '0'.repeat(64), seq: 1n, expiresAtMs: Date.now() + 60_000, body });
    await eventually('it was said', () => member.status().lastFailure?.reason === 'journal-order');
    assert.equal(member.status().lastFailure?.detail, 'journal: started does not follow receipted for command c-1');
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-2' }) } });
    assert.equal((await session.take('commandResult')).commandId, 'c-2');
    assert.deepEqual([member.effects.get('c-1'), member.effects.get('c-2')], [1, 1]);
  });

  describe('SKEW', () => {
    it('SKEW-015 welcomed below the minimum, it rejects everything but daemon.upgrade', async () => {
      const gateway = await stage.gatewayWith({ welcome: () => ({ protocolVersion: 2, upgradeRequired: true }) });
      await stage.daemonAt(gateway.url);
      const session = await gateway.nextSession();
      session.send({ frame: { case: 'command', value: await commandOf(stage.deployment) } });
      const reject = await session.take('commandReject');
      assert.equal(reject.reason, CommandRejectReason.UNSUPPORTED);
      assert.match(reject.detail, /only daemon\.upgrade runs/);
    });

    it('a version nobody asked for ends the session', async () => {
      const gateway = await stage.gatewayWith({ welcome: () => ({ protocolVersion: 3 }) });
      const member = await stage.daemonAt(gateway.url);
      await gateway.nextSession();
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'protocol-version');
    });
  });

  describe('lanes', () => {
    it('KIND-015 one lane runs one after another, lanes run side by side, and a cancel ends what waits and what runs', async () => {
      const order: string[] = [];
      const open: (() => void)[] = [];
      const blocked = {
        run: async (_payload: unknown, { commandId, signal }: { commandId: string; signal: AbortSignal }) => {
          order.push(`start ${commandId}`);
          await new Promise<void>((resolve, reject) => {
            open.push(resolve);
            signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
          });
          order.push(`end ${commandId}`);
          throw new Error('no result is needed');
        },
      };
      const gateway = await stage.gatewayWith();
      await stage.daemonAt(gateway.url, { handlers: { 'inventory.refresh': blocked, 'logs.collect': blocked } });
      const session = await gateway.nextSession();
      const sendAll = async (...all: [string, string][]): Promise<void> => {
        for (const [id, kind] of all) session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id, kind }) } });
      };
      await sendAll(['a', 'inventory.refresh'], ['b', 'inventory.refresh'], ['c', 'logs.collect']);
      await session.take('commandAck');
      await session.take('commandAck');
      await session.take('commandAck');
      await eventually('two lanes at work', () => order.length === 2);
      assert.deepEqual(order, ['start a', 'start c']);
      session.send({ frame: { case: 'cancelCommand', value: { commandId: 'b', reason: 'not needed' } } });
      const cancelled = await session.take('commandResult');
      assert.deepEqual([cancelled.commandId, cancelled.outcome, cancelled.errorCode], ['b', CommandOutcome.CANCELLED, 'CANCELLED']);
      assert.match(cancelled.errorMessage, /cancelled: not needed/);
      session.send({ frame: { case: 'cancelCommand', value: { commandId: 'c', reason: '' } } });
      assert.deepEqual((await session.take('commandResult')).outcome, CommandOutcome.CANCELLED);
      open[0]?.();
      const failed = await session.take('commandResult');
      assert.deepEqual([failed.commandId, failed.outcome, failed.errorMessage], ['a', CommandOutcome.FAILED, 'no result is needed']);
      assert.deepEqual(order, ['start a', 'start c', 'end a'], 'b never started');
    });

    it('a full lane leaves commands with the gateway, unacknowledged, and takes them as it empties', async () => {
      const open: (() => void)[] = [];
      const gateway = await stage.gatewayWith();
      const member = await stage.daemonAt(gateway.url, {
        handlers: {
          'node.reboot': {
            run: () => new Promise((resolve) => open.push(() => resolve({ kind: 'failed', code: 'INTERNAL', message: 'done' }))),
          },
        },
      });
      const session = await gateway.nextSession();
      const total = 67;
      for (let n = 0; n < total; n++)
        session.send({
          frame: { case: 'command', value: await commandOf(stage.deployment, { id: `r-${n}`, kind: 'node.reboot', seq: BigInt(n) }) },
        });
      // One runs, 64 wait, two are held back.
      for (let n = 0; n < total - 2; n++) await session.take('commandAck');
      assert.equal(member.agent.state.journal.size, total - 2);
      for (let n = 0; n < total; n++) {
        await eventually('the next one runs', () => open.length > n);
        open[n]?.();
      }
      const last = await eventually('all results', () => session.all('commandResult').length === total && session.all('commandResult'));
      assert.equal(new Set(last.map((one) => one.commandId)).size, total);
    });
  });

  it('an unknown command id in a receipt or a cancel harms nothing', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    session.send({ frame: { case: 'resultReceipt', value: { commandId: randomUUID() } } });
    session.send({ frame: { case: 'cancelCommand', value: { commandId: randomUUID() } } });
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment) } });
    await session.take('commandResult');
  });

  for (const epoch of [5n + 1_000_001n, 2n ** 52n + 1n, 2n ** 64n - 1n]) {
    it(`B52 a welcome in epoch ${epoch} after 5 is no frame, and shuts out no honest gateway`, async () => {
      const epochs = [5n, epoch];
      const gateway = await stage.gatewayWith({ welcome: () => ({ epoch: epochs.shift() ?? 6n }) });
      const member = await stage.daemonAt(gateway.url);
      const first = await gateway.nextSession();
      await first.take('status');
      gateway.cut();
      await gateway.nextSession();
      const honest = await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'implausible-epoch');
      assert.equal(member.status().lastFailure?.detail, `the gateway welcomed us in epoch ${epoch}, which cannot follow 5`);
      assert.equal(honest.hello?.epochSeen, 5n);
      honest.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-1', epoch: 6n }) } });
      assert.equal((await honest.take('commandResult')).commandId, 'c-1');
      assert.equal(member.agent.state.marks.current.epoch, 6n);
    });
  }

  it('B52 a new identity takes the count of the deployment as it is', async () => {
    const gateway = await stage.gatewayWith({ welcome: () => ({ epoch: 7_000_000n }) });
    const member = await stage.daemonAt(gateway.url);
    await (await gateway.nextSession()).take('status');
    assert.equal(member.agent.state.marks.current.epoch, 7_000_000n);
  });

  it('B52 an epoch lower than one seen is refused although its session is live', async () => {
    const epochs = [5n, 4n];
    const gateway = await stage.gatewayWith({ welcome: (_hello: Hello) => ({ epoch: epochs.shift() ?? 9n }) });
    const member = await stage.daemonAt(gateway.url);
    await gateway.nextSession();
    await eventually('connected', () => member.agent.link.current !== undefined);
    gateway.cut();
    const stale = await gateway.nextSession();
    assert.equal(stale.hello?.epochSeen, 5n);
    stale.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { epoch: 4n }) } });
    assert.equal((await stale.take('commandReject')).reason, CommandRejectReason.STALE_EPOCH);
    assert.equal(sessionTiming.pingEveryMs, 20 * second);
  });
});
