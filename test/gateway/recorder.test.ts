import assert from 'node:assert/strict';
import { mergeReports, Presence, type PresentSession, presenceTiming } from '../../gateway/session/presence.ts';
import { Recorder, type RecordingSession, recorderLimits } from '../../gateway/session/recorder.ts';
import type { SessionTouch } from '../../gateway/session/store.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { digestOf, MemoryStore } from './memory-store.ts';

class Session implements RecordingSession {
  readonly receipts: string[] = [];
  readonly refused: unknown[] = [];
  fenced = false;
  onReceipts(ids: readonly string[]): void {
    this.receipts.push(...ids);
  }
  onFenced(): void {
    this.fenced = true;
  }
  onRefused(error: unknown): void {
    this.refused.push(error);
  }
}

interface Scene {
  readonly store: MemoryStore;
  readonly scheduler: ManualScheduler;
  readonly recorder: Recorder;
  readonly unknown: string[];
  readonly rooms: number[];
}

function setUp(): Scene {
  const store = new MemoryStore();
  const scheduler = new ManualScheduler(0);
  const unknown: string[] = [];
  const rooms: number[] = [];
  const recorder = new Recorder({
    record: (batch) => store.record(batch),
    scheduler,
    onUnknown: (ids) => void unknown.push(...ids),
    onRoom: () => void rooms.push(scheduler.now()),
  });
  return { store, scheduler, recorder, unknown, rooms };
}

const resultOf = (store: MemoryStore, id: string, epoch = 1) => {
  const command = store.enqueue('node-1', { id });
  return {
    nodeId: 'node-1',
    epoch,
    commandId: id,
    outcome: 1,
    payload: null,
    errorCode: '',
    errorMessage: '',
    startedAt: null,
    finishedAt: null,
    bodySha256: digestOf(command.body),
  };
};

async function tick({ scheduler }: Scene, ms = 10): Promise<void> {
  scheduler.advance(ms);
  await turns();
}

describe('the recorder', () => {
  it('writes what all sessions said in a tick as one batch, and sends a receipt after it', async () => {
    const scene = setUp();
    scene.store.epochs.set('node-1', 1);
    const sessions = Array.from({ length: 30 }, () => new Session());
    sessions.forEach((session, at) => scene.recorder.push(session, { kind: 'result', row: resultOf(scene.store, `r${at}`) }));
    assert.ok(sessions.every(({ receipts }) => receipts.length === 0));
    await tick(scene);
    assert.equal(scene.store.counts.batches, 1);
    sessions.forEach(({ receipts }, at) => assert.deepEqual(receipts, [`r${at}`]));
  });

  it('B51 tells a fenced session and stores nothing of it', async () => {
    const scene = setUp();
    scene.store.epochs.set('node-1', 2);
    const session = new Session();
    scene.recorder.push(session, { kind: 'result', row: resultOf(scene.store, 'a', 1) });
    await tick(scene);
    assert.deepEqual([session.fenced, session.receipts, scene.store.results.size], [true, [], 0]);
  });

  it('keeps everything, in order, while the database is away, and tries again more slowly', async () => {
    const scene = setUp();
    scene.store.epochs.set('node-1', 1);
    const session = new Session();
    scene.store.takeAway();
    scene.recorder.push(session, { kind: 'result', row: resultOf(scene.store, 'a') });
    for (let attempt = 0; attempt < 5; attempt += 1) await tick(scene, recorderLimits.retryMaxMs);
    assert.deepEqual(session.receipts, []);
    scene.recorder.push(session, { kind: 'result', row: resultOf(scene.store, 'b') });
    scene.store.bringBack();
    await tick(scene, recorderLimits.retryMaxMs);
    assert.deepEqual(session.receipts, ['a', 'b']);
  });

  it('writes row by row when the database refuses a batch for what it is, and ends only the session that said it', async () => {
    const scene = setUp();
    scene.store.epochs.set('node-1', 1);
    const [good, bad] = [new Session(), new Session()];
    scene.recorder.push(good, { kind: 'result', row: resultOf(scene.store, 'a') });
    scene.recorder.push(bad, { kind: 'ack', row: { nodeId: 'node-1', epoch: 1, commandId: 'poison', seq: 1 } });
    scene.recorder.push(good, { kind: 'result', row: resultOf(scene.store, 'b') });
    await tick(scene);
    assert.deepEqual(good.receipts, ['a', 'b']);
    assert.deepEqual(
      bad.refused.map((error) => (error as { code: string }).code),
      ['INVALID_INPUT'],
    );
    assert.deepEqual(good.refused, []);
    assert.equal(scene.recorder.pending, 0);
  });

  it('says that it is full, and that there is room again', async () => {
    const scene = setUp();
    scene.store.epochs.set('node-1', 1);
    const session = new Session();
    scene.store.takeAway();
    for (let at = 0; at < recorderLimits.items; at += 1)
      scene.recorder.push(session, { kind: 'ack', row: { nodeId: 'node-1', epoch: 1, commandId: 'a', seq: at } });
    assert.equal(scene.recorder.isFull, true);
    scene.store.bringBack();
    const drained = scene.recorder.drained();
    for (let batch = 0; batch <= recorderLimits.items / recorderLimits.batch; batch += 1) await tick(scene);
    await drained;
    assert.equal(scene.recorder.isFull, false);
    assert.equal(scene.rooms.length, 1);
  });

  it('counts bytes as well as items', () => {
    const scene = setUp();
    const row = { ...resultOf(scene.store, 'a'), payload: new Uint8Array(1024 * 1024) };
    for (let at = 0; at < 32; at += 1) scene.recorder.push(new Session(), { kind: 'result', row });
    assert.equal(scene.recorder.isFull, true);
  });

  it('lets the daemon forget a result of no known command, and says so', async () => {
    const scene = setUp();
    scene.store.epochs.set('node-1', 1);
    const session = new Session();
    scene.recorder.push(session, { kind: 'result', row: { ...resultOf(scene.store, 'a'), commandId: 'gone' } });
    await tick(scene);
    assert.deepEqual([scene.unknown, session.receipts], [['gone'], ['gone']]);
  });
});

describe('presence', () => {
  const session = (id: string, lastSeenAt: number): PresentSession & { fenced: number; lastSeenAt: number } => ({
    id,
    lastSeenAt,
    unwritten: null,
    writtenSeenAt: 0,
    fenced: 0,
    onFenced() {
      this.fenced += 1;
    },
  });

  function present(sessions: PresentSession[]): {
    scheduler: ManualScheduler;
    presence: Presence;
    writes: (readonly SessionTouch[])[];
    answer: { ended: string[]; error: Error | null };
  } {
    const scheduler = new ManualScheduler(0);
    const writes: (readonly SessionTouch[])[] = [];
    const answer: { ended: string[]; error: Error | null } = { ended: [], error: null };
    const presence = new Presence({
      scheduler,
      sessions: () => sessions,
      write: async (touches) => {
        writes.push(touches);
        if (answer.error !== null) throw answer.error;
        return { ended: answer.ended };
      },
      onError: () => undefined,
    });
    return { scheduler, presence, writes, answer };
  }

  it('B42 writes 2,000 sessions in one statement each 10 to 15 s, and only what changed', async () => {
    const sessions = Array.from({ length: 2_000 }, (_, at) => session(`s${at}`, 1));
    const { scheduler, writes } = present(sessions);
    scheduler.advance(presenceTiming.maxMs);
    await turns();
    assert.deepEqual(
      writes.map((touches) => touches.length),
      [2_000],
    );
    scheduler.advance(presenceTiming.maxMs);
    await turns();
    assert.equal(writes.length, 1, 'nobody was heard since');
    (sessions[5] as { lastSeenAt: number }).lastSeenAt = 99;
    scheduler.advance(presenceTiming.maxMs);
    await turns();
    assert.deepEqual(writes[1], [{ sessionId: 's5', lastSeenAt: 99 }]);
  });

  it('ROT-016, ROT-019 writes a report within half a second, many reports in one statement', async () => {
    const sessions = [session('a', 1), session('b', 1)];
    const { scheduler, presence, writes } = present(sessions);
    for (const one of sessions) {
      one.unwritten = { trustVersion: 4 };
      presence.soon();
    }
    scheduler.advance(presenceTiming.soonMs);
    await turns();
    assert.deepEqual(writes, [
      [
        { sessionId: 'a', lastSeenAt: 1, trustVersion: 4 },
        { sessionId: 'b', lastSeenAt: 1, trustVersion: 4 },
      ],
    ]);
  });

  it('keeps a report that was not written, below what was reported since', async () => {
    const one = session('a', 1);
    const { presence, writes, answer } = present([one]);
    one.unwritten = { trustVersion: 9, daemonVersion: '1' };
    answer.error = new Error('away');
    await presence.flush();
    one.unwritten = { ...one.unwritten, trustVersion: 10, daemonVersion: '2' } as never;
    answer.error = null;
    await presence.flush();
    assert.deepEqual(writes[1], [{ sessionId: 'a', lastSeenAt: 1, trustVersion: 10, daemonVersion: '2' }]);
    assert.equal(one.unwritten, null);
  });

  it('H-07 says the trust version with every write: a database that was restored has forgotten it', async () => {
    const one = session('s1', 1);
    const { presence, writes } = present([one]);
    one.unwritten = { trustVersion: 3 };
    await presence.flush();
    (one as { lastSeenAt: number }).lastSeenAt = 2;
    await presence.flush();
    one.unwritten = { trustVersion: 4 };
    await presence.flush();
    (one as { lastSeenAt: number }).lastSeenAt = 5;
    await presence.flush();
    assert.deepEqual(
      writes.map(([touch]) => touch?.trustVersion),
      [3, 3, 4, 4],
    );
  });

  it('ROT-019 keeps the highest version of several reports, and the newest of everything else', () => {
    const merged = mergeReports({ trustVersion: 9, daemonVersion: '1' }, { trustVersion: 3, daemonVersion: '2' });
    assert.deepEqual(merged, { trustVersion: 9, daemonVersion: '2' });
    assert.deepEqual(mergeReports(null, { trustVersion: null }), { trustVersion: null });
  });

  it('LAG-003 of several sets keeps the one of the highest version, and of one version the later', () => {
    const reported = (version: number, epoch: number | null) => ({
      trustVersion: version,
      approverSet: { version, epoch, sha256: epoch === null ? null : new Uint8Array(32).fill(epoch) },
    });
    assert.equal(mergeReports(reported(9, 2), reported(8, 1)).approverSet?.epoch, 2);
    assert.equal(mergeReports(reported(9, 2), reported(9, null)).approverSet?.epoch, null);
    assert.deepEqual(mergeReports(reported(9, 2), { trustVersion: null }).approverSet, reported(9, 2).approverSet);
  });

  it('B51 ends a session whose row a newer one has closed', async () => {
    const [mine, other] = [session('a', 1), session('b', 1)];
    const { presence, answer } = present([mine, other]);
    answer.ended = ['a'];
    await presence.flush();
    assert.deepEqual([mine.fenced, other.fenced], [1, 0]);
  });
});
