import assert from 'node:assert/strict';
import fc from 'fast-check';
import { commandKinds, laneWindows } from '../../domain/commands/kinds.ts';
import { Delivery, deliveryLimits } from '../../gateway/session/delivery.ts';
import { Dispatcher, type DispatchSession, dispatchLimits } from '../../gateway/session/dispatcher.ts';
import type { QueuedCommand } from '../../gateway/session/store.ts';
import { ManualScheduler } from './manual-scheduler.ts';
import { MemoryStore, signatureBytes } from './memory-store.ts';

const command = (seq: number, over: Partial<QueuedCommand> = {}): QueuedCommand => ({
  nodeId: 'node-1',
  seq,
  id: `c${seq}`,
  kind: 'inventory.refresh',
  lane: 'control',
  body: new Uint8Array([seq % 256]),
  signature: signatureBytes,
  deadline: 1_000,
  state: 0,
  ...over,
});

/** One read from `log` behind the delivery's cursor. @returns what was sent */
function read(delivery: Delivery, log: readonly QueuedCommand[], only: string | null = null): number[] {
  delivery.beginRead();
  const from = delivery.readFrom();
  if (from === null) return [];
  const rows = log.filter(({ seq }) => seq > from);
  const sent = rows.filter((row) => delivery.judge(row, { now: 0, only }) === 'send').map(({ seq }) => seq);
  delivery.endRead(rows.at(-1)?.seq ?? 0);
  return sent;
}

describe('delivery by cursor with a window per lane', () => {
  it('sends no more than the window of a lane, and the next with each ack', () => {
    const log = Array.from({ length: 20 }, (_, at) => command(at + 1));
    const delivery = new Delivery();
    assert.equal(read(delivery, log).length, laneWindows.control);
    assert.deepEqual(read(delivery, log), []);
    assert.equal(delivery.onAck('c3'), true);
    assert.deepEqual(read(delivery, log), [17]);
    assert.equal(delivery.onAck('c3'), false, 'the second ack of the same command makes no room');
    assert.deepEqual(read(delivery, log), []);
  });

  it('lets a lane wait without holding up another', () => {
    const log = [
      command(1, { lane: 'power' }),
      command(2, { lane: 'power' }),
      command(3),
      command(4, { lane: 'bulk' }),
      command(5, { lane: 'power' }),
    ];
    const delivery = new Delivery();
    assert.deepEqual(read(delivery, log), [1, 3, 4]);
    delivery.onAck('c1');
    assert.deepEqual(read(delivery, log), [2]);
    delivery.onEnd('c2');
    assert.deepEqual(read(delivery, log), [5]);
  });

  it('a reject or a result without an ack gives the place back', () => {
    const log = [command(1, { lane: 'power' }), command(2, { lane: 'power' })];
    const delivery = new Delivery();
    read(delivery, log);
    assert.equal(delivery.onEnd('c1'), true, 'the second waits');
    assert.deepEqual(read(delivery, log), [2]);
    assert.equal(delivery.onEnd('c2'), false, 'nothing waits');
    assert.deepEqual(delivery.outstanding(0), []);
  });

  it('passes over what is too old, and over what a restricted session may not have', () => {
    const delivery = new Delivery();
    assert.deepEqual(read(delivery, [command(1, { deadline: 0 }), command(2)]), [2]);
    assert.deepEqual(read(new Delivery(), [command(1), command(2, { kind: 'daemon.upgrade' })], 'daemon.upgrade'), [2]);
  });

  it('keeps nothing of a command that can no longer run, and no more than a bound, of a node that never answers', () => {
    const delivery = new Delivery();
    const { timeoutMs } = commandKinds['inventory.refresh'];
    for (let seq = 1; seq <= 2 * deliveryLimits.outstanding; seq += 1) {
      assert.deepEqual(read(delivery, [command(seq, { deadline: 1_000 })]), [seq]);
      if (seq !== 3) delivery.onAck(`c${seq}`);
    }
    const kept = delivery.outstanding(1_000 + timeoutMs - 1);
    assert.equal(kept.length, deliveryLimits.outstanding);
    assert.deepEqual([kept[0], kept.at(-1)], ['c3', `c${2 * deliveryLimits.outstanding}`], 'the oldest acknowledged ones go');
    assert.deepEqual(delivery.outstanding(1_000 + timeoutMs), []);
  });

  it('gives the place of a command that was never acknowledged back when it can no longer run', () => {
    const delivery = new Delivery();
    const log = [command(1, { lane: 'power', deadline: 5 }), command(2, { lane: 'power' })];
    assert.deepEqual(read(delivery, log), [1]);
    assert.deepEqual(delivery.outstanding(5 + commandKinds['inventory.refresh'].timeoutMs), []);
    assert.deepEqual(read(delivery, log), [2]);
  });

  it('gives a lane it does not know the narrowest window', () => {
    assert.deepEqual(read(new Delivery(), [command(1, { lane: 'quantum' }), command(2, { lane: 'quantum' })]), [1]);
  });

  it('sends every command once, in the order of its lane, whatever acks come when', () => {
    const lanes = fc.constantFrom('control', 'power', 'bulk');
    fc.assert(
      fc.property(fc.array(lanes, { minLength: 1, maxLength: 60 }), fc.array(fc.nat(), { maxLength: 200 }), (names, choices) => {
        const log = names.map((lane, at) => command(at + 1, { lane }));
        const delivery = new Delivery();
        const sent: number[] = [];
        const unacked: string[] = [];
        const step = (): void => {
          for (const seq of read(delivery, log)) {
            sent.push(seq);
            unacked.push(`c${seq}`);
          }
        };
        for (const choice of choices) {
          step();
          const [id] = unacked.splice(choice % Math.max(1, unacked.length), 1);
          if (id === undefined) continue;
          if (choice % 2 === 0) delivery.onAck(id);
          else delivery.onEnd(id);
        }
        for (let left = 0; left <= log.length; left += 1) {
          step();
          for (const id of unacked.splice(0)) delivery.onAck(id);
        }
        assert.equal(new Set(sent).size, sent.length);
        assert.equal(sent.length, log.length);
        for (const lane of ['control', 'power', 'bulk']) {
          const ofLane = sent.filter((seq) => names[seq - 1] === lane);
          assert.deepEqual(
            ofLane,
            [...ofLane].sort((a, b) => a - b),
          );
        }
      }),
    );
  });
});

class Session implements DispatchSession {
  readonly delivered: string[] = [];
  readonly cancelled: string[] = [];
  readonly sent = new Delivery();
  fenced = false;
  takes = Number.POSITIVE_INFINITY;
  readonly nodeId: string;
  readonly epoch: number;
  constructor(nodeId: string, epoch: number) {
    this.nodeId = nodeId;
    this.epoch = epoch;
  }
  readFrom(): number | null {
    this.sent.beginRead();
    return this.sent.readFrom();
  }
  deliver(commands: readonly QueuedCommand[]): boolean {
    let judgedTo = 0;
    for (const row of commands) {
      if (this.takes === 0) break;
      if (this.sent.judge(row, { now: 0, only: null }) === 'send') {
        this.delivered.push(row.id);
        this.takes -= 1;
      }
      judgedTo = row.seq;
    }
    this.sent.endRead(judgedTo);
    return this.takes > 0;
  }
  outstanding = (): string[] => this.sent.outstanding(0);
  onCancelled(id: string): void {
    this.cancelled.push(id);
    this.sent.onEnd(id);
  }
  onFenced(): void {
    this.fenced = true;
  }
  readonly refused: unknown[] = [];
  onRefused(error: unknown): void {
    this.refused.push(error);
  }
}

describe('the dispatcher', () => {
  const setUp = (): { store: MemoryStore; scheduler: ManualScheduler; dispatcher: Dispatcher; errors: unknown[] } => {
    const store = new MemoryStore();
    const scheduler = new ManualScheduler(0);
    const errors: unknown[] = [];
    const dispatcher = new Dispatcher({
      scheduler,
      read: (cursors, limit) => store.readOpenCommands(cursors, limit),
      cancelledAmong: (ids) => store.cancelledAmong(ids),
      onError: (error) => void errors.push(error),
    });
    return { store, scheduler, dispatcher, errors };
  };

  it('reads many nodes in one statement', async () => {
    const { store, dispatcher } = setUp();
    const sessions = Array.from({ length: 50 }, (_, at) => new Session(`node-${at}`, 1));
    for (const { nodeId } of sessions) {
      store.epochs.set(nodeId, 1);
      store.enqueue(nodeId, { id: `for-${nodeId}` });
    }
    dispatcher.poke(sessions);
    await dispatcher.run();
    assert.ok(sessions.every(({ delivered, nodeId }) => delivered.length === 1 && delivered[0] === `for-${nodeId}`));
    assert.equal(store.counts.reads, 1);
  });

  it('asks for cancellations in bounded slices, and only of sessions that were poked', async () => {
    const asked: number[] = [];
    const dispatcher = new Dispatcher({
      scheduler: new ManualScheduler(0),
      read: async () => ({ commands: [], fenced: [] }),
      cancelledAmong: async (ids) => {
        asked.push(ids.length);
        return ids.slice(0, 1);
      },
      onError: assert.ifError,
    });
    const session = new Session('node-1', 1);
    session.outstanding = () => Array.from({ length: 2 * dispatchLimits.idsPerQuestion + 5 }, (_, at) => `c${at}`);
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(asked, []);
    dispatcher.poke([session]);
    await dispatcher.run();
    assert.deepEqual(asked, [dispatchLimits.idsPerQuestion, dispatchLimits.idsPerQuestion, 5]);
    assert.deepEqual(session.cancelled, ['c0', `c${dispatchLimits.idsPerQuestion}`, `c${2 * dispatchLimits.idsPerQuestion}`]);
  });

  it('a session that fails on what it is given holds up no other', async () => {
    const { store, dispatcher, errors } = setUp();
    const [bad, good] = [new Session('node-1', 1), new Session('node-2', 1)];
    bad.deliver = () => {
      throw new Error('not sendable');
    };
    for (const { nodeId } of [bad, good]) {
      store.epochs.set(nodeId, 1);
      store.enqueue(nodeId, { id: `for-${nodeId}` });
    }
    dispatcher.poke([bad, good]);
    await dispatcher.run();
    assert.deepEqual([good.delivered, errors], [['for-node-2'], []]);
    assert.equal(String(bad.refused[0]), 'Error: not sendable');
  });

  it('reads past a long row of a lane that waits', async () => {
    const { store, dispatcher } = setUp();
    store.epochs.set('node-1', 1);
    for (let at = 0; at < dispatchLimits.rowsPerNode * 3; at += 1)
      store.enqueue('node-1', { id: `p${at}`, lane: 'power', kind: 'node.reboot' });
    store.enqueue('node-1', { id: 'urgent' });
    const session = new Session('node-1', 1);
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(session.delivered, ['p0', 'urgent']);
  });

  it('B51, B52 ends a session of an older epoch and sends it nothing', async () => {
    const { store, dispatcher } = setUp();
    store.epochs.set('node-1', 2);
    store.enqueue('node-1', { id: 'a' });
    const [older, newer] = [new Session('node-1', 1), new Session('node-1', 2)];
    dispatcher.wake(older);
    await dispatcher.run();
    dispatcher.wake(newer);
    await dispatcher.run();
    assert.deepEqual([older.fenced, older.delivered, newer.delivered], [true, [], ['a']]);
  });

  it('B52 throws away a read that a pause of the process made old', async () => {
    const { store, scheduler, dispatcher } = setUp();
    store.epochs.set('node-1', 1);
    store.enqueue('node-1', { id: 'a' });
    let release: () => void = () => undefined;
    store.gates.set('readOpenCommands', new Promise((resolve) => void (release = resolve)));
    const session = new Session('node-1', 1);
    dispatcher.wake(session);
    const running = dispatcher.run();
    await new Promise<void>((resolve) => void setImmediate(() => setImmediate(resolve)));
    scheduler.advance(dispatchLimits.leaseMs + 1);
    release();
    await running;
    assert.deepEqual(session.delivered, []);
    store.gates.clear();
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(session.delivered, ['a'], 'nothing was lost: the cursor had not moved');
  });

  it('stops where the stream is full and goes on from there', async () => {
    const { store, dispatcher } = setUp();
    store.epochs.set('node-1', 1);
    for (let at = 0; at < 5; at += 1) store.enqueue('node-1', { id: `c${at}` });
    const session = new Session('node-1', 1);
    session.takes = 2;
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(session.delivered, ['c0', 'c1']);
    session.takes = 10;
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(session.delivered, ['c0', 'c1', 'c2', 'c3', 'c4']);
  });

  it('tells of a cancelled command once', async () => {
    const { store, dispatcher } = setUp();
    store.epochs.set('node-1', 1);
    store.enqueue('node-1', { id: 'a' });
    const session = new Session('node-1', 1);
    dispatcher.poke([session]);
    await dispatcher.run();
    store.cancel('a');
    for (let poke = 0; poke < 2; poke += 1) {
      dispatcher.poke([session]);
      await dispatcher.run();
    }
    assert.deepEqual(session.cancelled, ['a']);
  });

  it('B69 delivers in log order what two writers appended', async () => {
    const { store, dispatcher } = setUp();
    store.epochs.set('node-1', 1);
    const session = new Session('node-1', 1);
    for (let at = 0; at < 10; at += 1) {
      store.enqueue('node-1', { id: `c${at}` });
      dispatcher.wake(session);
      if (at % 3 === 0) await dispatcher.run();
    }
    await dispatcher.run();
    assert.deepEqual(
      session.delivered,
      Array.from({ length: 10 }, (_, at) => `c${at}`),
    );
  });

  it('keeps its cursors when the database is away, and loses no wake that comes in between', async () => {
    const { store, dispatcher, errors } = setUp();
    store.epochs.set('node-1', 1);
    store.enqueue('node-1', { id: 'a' });
    const session = new Session('node-1', 1);
    store.takeAway();
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(
      errors.map((error) => (error as { code: string }).code),
      ['UNAVAILABLE'],
    );
    store.bringBack();
    dispatcher.wake(session);
    await dispatcher.run();
    assert.deepEqual(session.delivered, ['a']);
  });
});
