/** From our errors to Temporal's: type, finality, and the wait that is no fault. */
import assert from 'node:assert/strict';
import { CompleteAsyncError } from '@temporalio/activity';
import { ApplicationFailure, ApplicationFailureCategory, CancelledFailure } from '@temporalio/common';
import { toApplicationFailure, translated } from '../../activities/failures.ts';
import { nextDelayMs, notYet } from '../../activities/not-yet.ts';
import { type Code, ControlError, errorTable } from '../../domain/errors.ts';

describe('toApplicationFailure', () => {
  for (const code of Object.keys(errorTable) as Code[]) {
    it(`${code} keeps its name; retried only where the table says a retry can help`, () => {
      const failure = toApplicationFailure(new ControlError(code, 'what it is', { details: { reason: 'why' } }));
      assert.ok(failure instanceof ApplicationFailure);
      assert.equal(failure.type, code);
      assert.equal(failure.message, 'what it is');
      assert.deepEqual(failure.details, [{ reason: 'why' }]);
      assert.equal(failure.nonRetryable, code !== 'INTERNAL' && !errorTable[code].retryable);
      assert.equal(failure.category === ApplicationFailureCategory.BENIGN, code === 'NOT_YET');
    });
  }

  it('a lost race for the bundle is retried although CONFLICT is final', () => {
    for (const reason of ['bundle-busy', 'bundle-locked', 'node-changed']) {
      const failure = toApplicationFailure(new ControlError('CONFLICT', 'someone was faster', { details: { reason } }));
      assert.equal((failure as ApplicationFailure).nonRetryable, false, reason);
    }
  });

  it('H-07 a worker that is older than the deployment leaves the step to a current one, or to itself once repaired', () => {
    for (const reason of ['bundle-replaced', 'database-behind-fleet']) {
      const stale = new ControlError('STALE_BUNDLE', 'restore the current one', { details: { reason } });
      assert.equal((toApplicationFailure(stale) as ApplicationFailure).nonRetryable, false, reason);
      assert.equal((toApplicationFailure(stale, { reportsRepairable: true }) as ApplicationFailure).nonRetryable, true, reason);
    }
    const forked = toApplicationFailure(new ControlError('STALE_BUNDLE', 'two bundles', { details: { reason: 'bundle-forked' } }));
    assert.equal((forked as ApplicationFailure).nonRetryable, true);
  });

  it('what is not ours is retried: a fixed release goes on', () => {
    const failure = toApplicationFailure(new TypeError('x is not a function')) as ApplicationFailure;
    assert.equal(failure.type, 'INTERNAL');
    assert.equal(failure.nonRetryable, false);
  });

  it("Temporal's own pass through", () => {
    for (const error of [new CompleteAsyncError(), new CancelledFailure('cancelled')]) assert.equal(toApplicationFailure(error), error);
  });

  it('translates what an activity throws, and answers what it answers', async () => {
    const activities = translated({
      good: async (value: number) => value + 1,
      bad: async () => {
        throw new ControlError('NOT_FOUND', 'no node is called x');
      },
    });
    assert.equal(await activities.good(1), 2);
    await assert.rejects(activities.bad(), (error: unknown) => error instanceof ApplicationFailure && error.type === 'NOT_FOUND');
  });
});

describe('notYet', () => {
  it('names its next attempt and a few of those it waits for', () => {
    const behind = Array.from({ length: 50 }, (_, i) => `node-${i}`);
    try {
      notYet({ reason: 'nodes-behind', message: '50 of 50', behind }, { elapsedMs: 0 });
    } catch (error) {
      const failure = toApplicationFailure(error) as ApplicationFailure;
      assert.equal(failure.nextRetryDelay, 1_000);
      assert.equal((failure.details?.[0] as { behind: string[] } | undefined)?.behind.length, 20);
    }
  });

  it('asks quickly while someone watches, then rarely', () => {
    assert.deepEqual(
      [0, 8_999, 16_000, 80_000, 120_000, 86_400_000].map((elapsedMs) => nextDelayMs({ elapsedMs })),
      [1_000, 1_124, 2_000, 10_000, 15_000, 15_000],
    );
  });
});
