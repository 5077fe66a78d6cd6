import assert from 'node:assert/strict';
import { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import { RenewLimit, renewsPerHour } from '../../gateway/renew-limit.ts';
import { feedTiming, RevocationFeed } from '../../gateway/revocation/feed.ts';
import { DatabaseWatch, databaseLimits } from '../../gateway/session/database-watch.ts';
import { createLimiter } from '../../gateway/session/limiter.ts';
import { parsePoke } from '../../gateway/session/notifications.ts';
import type { Revocation } from '../../gateway/session/store.ts';
import { TrustFeed } from '../../gateway/session/trust-feed.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { MemoryStore, trustOf } from './memory-store.ts';

describe('the revocation feed', () => {
  const setUp = () => {
    const store = new MemoryStore();
    const scheduler = new ManualScheduler(1_000_000);
    const told: string[] = [];
    const reads = { all: 0, after: 0 };
    const errors: unknown[] = [];
    const feed = new RevocationFeed({
      scheduler,
      readAll: () => {
        reads.all += 1;
        return store.readAllRevoked();
      },
      readAfter: (seq) => {
        reads.after += 1;
        return store.readRevocationsAfter(seq);
      },
      onRevoked: (list: readonly Revocation[]) => void told.push(...list.map(({ serial }) => serial)),
      onError: (error) => void errors.push(error),
    });
    const pass = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += 1_000) {
        scheduler.advance(1_000);
        await turns(4);
      }
    };
    return { store, scheduler, told, reads, errors, feed, pass };
  };

  it('REV-007, REV-008 loads all at the start, then reads on each second', async () => {
    const { store, told, reads, feed, pass } = setUp();
    store.revoke('ca', '01');
    await feed.start();
    assert.equal(feed.isRevoked({ issuer: 'ca', serial: '01' }), true);
    assert.equal(feed.isRevoked({ issuer: 'other', serial: '01' }), false, 'a serial is its issuer’s');
    store.revoke('ca', '02');
    assert.equal(feed.isRevoked({ issuer: 'ca', serial: '02' }), false);
    await pass(1_000);
    assert.equal(feed.isRevoked({ issuer: 'ca', serial: '02' }), true);
    await pass(9_000);
    assert.deepEqual([told, reads, feed.seq], [['01', '02'], { all: 1, after: 10 }, 2]);
    feed.close();
  });

  it('REV-010, REV-011 asks each 5 s after three failures in a row, and each second once it is answered', async () => {
    const { store, reads, errors, feed, pass } = setUp();
    await feed.start();
    store.takeAway();
    await pass(3_000);
    assert.deepEqual([reads.after, feed.isDegraded], [3, true]);
    await pass(4_000);
    assert.equal(reads.after, 3);
    await pass(1_000);
    assert.equal(reads.after, 4);
    assert.equal(errors.length, 4);
    store.bringBack();
    store.revoke('ca', '09');
    await pass(feedTiming.degradedMs);
    assert.deepEqual([feed.isDegraded, feed.isRevoked({ issuer: 'ca', serial: '09' })], [false, true]);
    await pass(3_000);
    assert.equal(reads.after, 8);
    feed.close();
  });

  it('H-16 reads everything again each five minutes, tells nobody twice and forgets what is not listed any more', async () => {
    const { store, told, reads, feed, pass } = setUp();
    store.revoke('ca', '01');
    await feed.start();
    store.revocations.length = 0;
    await pass(feedTiming.reloadMs);
    assert.deepEqual([reads.all, told, feed.size], [2, ['01'], 0]);
    feed.close();
  });

  it('H-16 reads everything again when the database gives numbers below its own: it was restored', async () => {
    const { store, told, reads, feed, pass } = setUp();
    for (const serial of ['01', '02', '03']) store.revoke('ca', serial);
    await feed.start();
    store.revocations.length = 1;
    await pass(1_000);
    assert.deepEqual([reads.all, feed.seq], [2, 1]);
    store.revoke('ca', '04');
    await pass(1_000);
    assert.deepEqual([told, feed.isRevoked({ issuer: 'ca', serial: '04' })], [['01', '02', '03', '04'], true]);
    feed.close();
  });

  it('does not start without its first answer', async () => {
    const { store, feed } = setUp();
    store.takeAway();
    await assert.rejects(feed.start(), { code: 'UNAVAILABLE', message: 'the database does not answer' });
  });
});

describe('the trust feed', () => {
  it('H-02 answers with a read that began after the question, and shares reads', async () => {
    let release: ((version: number) => void)[] = [];
    let reads = 0;
    const changes: number[] = [];
    const feed = new TrustFeed(
      () => {
        reads += 1;
        return new Promise((resolve) => void release.push((version) => resolve(trustOf(version))));
      },
      ({ version }) => void changes.push(version),
    );
    const answer = async (version: number): Promise<void> => {
      await turns(2);
      for (const resolve of release.splice(0)) resolve(version);
      await turns(2);
    };
    release = [];
    const early = feed.fresh();
    await turns(2);
    const late = Promise.all(Array.from({ length: 100 }, () => feed.fresh()));
    assert.equal(reads, 1);
    await answer(1);
    assert.equal((await early)?.version, 1);
    await answer(2);
    assert.deepEqual(new Set((await late).map((trust) => trust?.version)), new Set([2]));
    assert.equal(reads, 2);
    assert.deepEqual(changes, [1, 2]);
    const older = feed.fresh();
    await answer(1);
    assert.equal((await older)?.version, 2, 'a read from behind never takes a version back');
  });

  it('a failed read fails those who asked, and no later one', async () => {
    const store = new MemoryStore();
    const feed = new TrustFeed(
      () => store.publishedTrust(),
      () => undefined,
    );
    store.takeAway();
    await assert.rejects(feed.fresh(), { code: 'UNAVAILABLE', message: 'the database does not answer' });
    store.bringBack();
    assert.equal((await feed.fresh())?.version, 1);
  });
});

describe('small rules of the gateway', () => {
  it('WS-014 lets a node renew six times an hour, in a window that slides', () => {
    const limit = new RenewLimit();
    for (let at = 0; at < renewsPerHour; at += 1) limit.count('node-1', at * 1_000);
    assert.throws(
      () => limit.count('node-1', 10_000),
      (error: ControlError) => {
        assert.deepEqual(
          [error.code, error.details['reason'], error.details['pushbackMs']],
          ['RATE_LIMITED', 'renew-rate-limit', hour - 10_000],
        );
        assert.equal(error.message, 'node node-1 renewed 6 times within an hour');
        return true;
      },
    );
    limit.count('node-2', 10_000);
    limit.count('node-1', hour);
    assert.throws(() => limit.count('node-1', hour), { code: 'RATE_LIMITED' });
    limit.count('node-1', hour + 1_000);
  });

  it('B40 counts how long the database is away; a refused statement is an answer', () => {
    let now = 0;
    const watch = new DatabaseWatch(() => now);
    watch.failed(new ControlError('PERMISSION_DENIED', 'no'));
    now = databaseLimits.refuseAfterMs * 2;
    assert.equal(watch.isRefusing, false);
    watch.failed(new ControlError('UNAVAILABLE', 'away'));
    now += databaseLimits.refuseAfterMs;
    watch.failed(new Error('anything else'));
    assert.deepEqual([watch.isRefusing, watch.isReleasing], [true, false]);
    now += databaseLimits.releaseAfterMs;
    assert.equal(watch.isReleasing, true);
    watch.succeeded();
    assert.deepEqual([watch.isRefusing, watch.isReleasing, watch.awayForMs], [false, false, 0]);
  });

  it('a limiter runs so many at a time, in order, and refuses what does not fit', async () => {
    const limit = createLimiter({ atATime: 2, maxWaiting: 2 });
    const running: string[] = [];
    const ends = new Map<string, () => void>();
    const work = (name: string): Promise<void> =>
      limit(() => {
        running.push(name);
        return new Promise<void>((resolve) => void ends.set(name, resolve));
      });
    const all = ['a', 'b', 'c', 'd'].map(work);
    await assert.rejects(work('e'), { code: 'UNAVAILABLE', message: 'this gateway has no room now' });
    await turns(1);
    assert.deepEqual(running, ['a', 'b']);
    ends.get('b')?.();
    await turns(1);
    assert.deepEqual(running, ['a', 'b', 'c']);
    ends.get('a')?.();
    await turns(1);
    for (const name of ['c', 'd']) ends.get(name)?.();
    await Promise.all(all);
    await assert.rejects(
      limit(async () => Promise.reject(new Error('x'))),
      { message: 'x' },
    );
    await limit(async () => undefined);
  });

  it('B68 a poke that is no list of ids means: look everywhere', () => {
    assert.deepEqual(parsePoke('["a","b"]'), ['a', 'b']);
    for (const payload of ['sweep', '', undefined, '["a",', '[1]', '{}', 'null', '"a"'])
      assert.equal(parsePoke(payload), 'sweep', String(payload));
  });
});
