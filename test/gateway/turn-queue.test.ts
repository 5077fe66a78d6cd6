/** What arrives is paid for one piece a turn of the event loop. */
import assert from 'node:assert/strict';
import { TurnQueue } from '../../gateway/turn-queue.ts';
import { dial, nodeLeaf, servicePath, TestCall } from '../harness/agent.ts';
import { startGateway } from './start-gateway.ts';

describe('the queue of turns', () => {
  it('does one thing a turn, first come first served, also what is added from within', () => {
    const turns: (() => void)[] = [];
    const queue = new TurnQueue((fn) => void turns.push(fn));
    const done: string[] = [];
    queue.add(() => {
      queue.add(() => done.push('c') > 0);
      return done.push('a') > 0;
    });
    queue.add(() => done.push('b') > 0);
    const perTurn: string[][] = [];
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      const before = done.length;
      turn();
      perTurn.push(done.slice(before));
    }
    assert.deepEqual(perTurn, [['a'], ['b'], ['c']]);
  });

  it('spends no turn on what has nothing left to do', () => {
    const turns: (() => void)[] = [];
    const queue = new TurnQueue((fn) => void turns.push(fn));
    const done: string[] = [];
    for (let gone = 0; gone < 1_000; gone += 1) queue.add(() => false);
    queue.add(() => done.push('next') > 0);
    queue.add(() => done.push('later') > 0);
    turns.shift()?.();
    assert.deepEqual(done, ['next']);
  });

  it('goes on after work that threw', () => {
    const turns: (() => void)[] = [];
    const queue = new TurnQueue((fn) => void turns.push(fn));
    const done: string[] = [];
    queue.add(() => {
      throw new Error('a fault of ours');
    });
    queue.add(() => done.push('next') > 0);
    assert.throws(() => turns.shift()?.(), /a fault of ours/);
    turns.shift()?.();
    assert.deepEqual(done, ['next']);
  });

  it('lets whatever else is ready come between two pieces', async () => {
    const queue = new TurnQueue();
    const order: string[] = [];
    await new Promise<void>((resolve) => {
      queue.add(() => {
        order.push('first');
        setImmediate(() => order.push('between'));
        return true;
      });
      queue.add(() => order.push('second') > 0);
      queue.add(() => {
        order.push('third');
        resolve();
        return true;
      });
    });
    assert.deepEqual(order.indexOf('between') < order.indexOf('third'), true, order.join(' '));
  });

  for (const method of ['Renew', 'Session'])
    it(`ends a ${method} that said nothing at once, although its end came before its turn`, async () => {
      const { gateway, port, authorities } = await startGateway();
      const session = dial({ port, leaf: await nodeLeaf(authorities, 'node-1') });
      const call = new TestCall(session, `${servicePath}/${method}`);
      call.halfClose();
      const { status, reason } = await call.ended;
      assert.deepEqual([status, reason], [3, method === 'Renew' ? 'no-message' : 'first-frame-not-hello']);
      session.destroy();
      await gateway.close();
    });
});
