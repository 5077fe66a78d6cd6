import assert from 'node:assert/strict';
import { ProgressBoard, progressLimits, type ReportingSession } from '../../gateway/session/progress.ts';
import type { CommandProgressRow } from '../../gateway/session/store.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { MemoryStore } from './memory-store.ts';

class Session implements ReportingSession {
  fenced = 0;
  onFenced(): void {
    this.fenced += 1;
  }
}

const row = (commandId: string, done: number, over: Partial<CommandProgressRow> = {}): CommandProgressRow => ({
  nodeId: 'node-1',
  epoch: 1,
  commandId,
  done,
  total: 100,
  note: '',
  ...over,
});

function setUp() {
  const store = new MemoryStore();
  store.epochs.set('node-1', 1);
  const scheduler = new ManualScheduler(0);
  const writes: (readonly CommandProgressRow[])[] = [];
  const errors: unknown[] = [];
  const board = new ProgressBoard({
    scheduler,
    write: (rows) => {
      writes.push(rows);
      return store.recordProgress(rows);
    },
    onError: (error) => void errors.push(error),
  });
  const second = async (): Promise<void> => {
    scheduler.advance(progressLimits.everyMs);
    await turns();
  };
  return { store, board, writes, errors, second };
}

describe('how far commands are, at the gateway', () => {
  it('FRM-004 writes the last word of each command, all sessions in one statement a second', async () => {
    const { store, board, writes, second } = setUp();
    store.epochs.set('node-2', 1);
    for (const id of ['a', 'b']) store.enqueue('node-1', { id });
    store.enqueue('node-2', { id: 'c' });
    const [one, two] = [new Session(), new Session()];
    for (let done = 0; done <= 50; done += 1) board.push(one, row('a', done));
    board.push(one, row('b', 7));
    board.push(two, row('c', 9, { nodeId: 'node-2' }));
    assert.equal(board.size, 3);
    await second();
    const done = [...store.progress.values()].map((said) => [said.commandId, said.done]);
    assert.deepEqual(
      [writes.length, done],
      [
        1,
        [
          ['a', 50],
          ['b', 7],
          ['c', 9],
        ],
      ],
    );
    await second();
    assert.deepEqual([writes.length, board.size], [1, 0], 'nobody has said anything since');
  });

  it('FRM-004 hears each session about as many commands as could run, and no more in all than a bound', async () => {
    const { board, writes, second } = setUp();
    const [flood, other] = [new Session(), new Session()];
    for (let at = 0; at < 1_000; at += 1) board.push(flood, row(`made-up/${at}`, at));
    board.push(other, row('a', 1));
    assert.equal(board.size, progressLimits.commandsOfSession + 1);
    const { commands, commandsOfSession } = progressLimits;
    const sessions = Array.from({ length: commands / commandsOfSession }, () => new Session());
    for (const session of sessions) for (let at = 0; at < commandsOfSession; at += 1) board.push(session, row(`run/${at}`, 0));
    assert.equal(board.size, commands);
    board.push(flood, row('made-up/1', 99));
    await second();
    assert.equal(writes[0]?.find(({ commandId }) => commandId === 'made-up/1')?.done, 99, 'what is known is still replaced');
    assert.ok(writes.every((rows) => rows.length <= progressLimits.rowsPerStatement));
  });

  it('FRM-004 drops what cannot be written: the next word says more', async () => {
    const { store, board, errors, second } = setUp();
    store.enqueue('node-1', { id: 'a' });
    const session = new Session();
    store.takeAway();
    board.push(session, row('a', 1));
    await second();
    assert.deepEqual([errors.length, board.size, store.progress.size], [1, 0, 0]);
    store.bringBack();
    board.push(session, row('a', 2));
    await second();
    assert.equal(store.progress.get('a')?.done, 2);
  });

  it('B51 tells a session that is no longer its node’s, once, and keeps nothing of it', async () => {
    const { store, board, second } = setUp();
    for (const id of ['a', 'b']) store.enqueue('node-1', { id });
    store.epochs.set('node-1', 2);
    const [old, current] = [new Session(), new Session()];
    for (const id of ['a', 'b']) board.push(old, row(id, 90));
    board.push(current, row('c', 5, { epoch: 2 }));
    await second();
    assert.deepEqual([old.fenced, current.fenced, store.progress.size], [1, 0, 0]);
  });

  it('asks a slow database for one write at a time, and keeps what is said meanwhile for the next', async () => {
    const { store, board, writes, second } = setUp();
    store.enqueue('node-1', { id: 'a' });
    const answers: (() => void)[] = [];
    store.gates.set('recordProgress', new Promise<void>((resolve) => void answers.push(resolve)));
    const session = new Session();
    board.push(session, row('a', 1));
    await second();
    board.push(session, row('a', 2));
    await second();
    assert.equal(writes.length, 1);
    for (const answer of answers) answer();
    await turns();
    await second();
    assert.deepEqual([writes.length, store.progress.get('a')?.done], [2, 2]);
  });
});
