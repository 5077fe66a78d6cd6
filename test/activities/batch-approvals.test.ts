/** Many approvals at once, most of them forged: what one call counts, and what makes the server call again. */
import assert from 'node:assert/strict';
import type { ApplicationFailure } from '@temporalio/common';
import { createBatchControlActivities } from '../../activities/batches-control.ts';
import { ControlError } from '../../domain/errors.ts';
import { BatchWorld } from '../workflows/batch-world.ts';

describe('recordApprovals', () => {
  let world: BatchWorld;
  let id: string;
  beforeEach(() => {
    world = new BatchWorld();
    id = world.add('many');
  });
  const record = (approvals: readonly { kid: string; sig: string }[]) =>
    createBatchControlActivities(world).recordApprovals({ batchId: id, approvals });
  const forged = (by: number): { kid: string; sig: string } => ({ ...world.approval(by, id), sig: 'A'.repeat(86) });
  const stranger = { kid: '0'.repeat(64), sig: 'A'.repeat(86) };

  it('counts the right ones between those that are refused, each approver once', async () => {
    const right = world.approval(1, id);
    const facts = await record([stranger, forged(1), right, right, forged(0), stranger]);
    assert.deepEqual([facts.state, facts.approvals.map(({ kid }) => kid)], ['pending', [right.kid]]);
  });

  it('passes over what comes behind the last one that was missing', async () => {
    const facts = await record([world.approval(0, id), world.approval(1, id), world.approval(2, id)]);
    assert.deepEqual([facts.state, facts.approvals.length], ['approved', 2]);
  });

  it('a fault is repeated, and repeats nothing that is recorded', async () => {
    let failed = false;
    world.before = (call) => {
      if (call !== 'recordApproval.done' || failed) return;
      failed = true;
      throw new ControlError('UNAVAILABLE', 'a lost answer');
    };
    const approvals = [world.approval(0, id), stranger, world.approval(1, id)];
    await assert.rejects(
      record(approvals),
      ({ type, nonRetryable }: ApplicationFailure) => type === 'UNAVAILABLE' && nonRetryable === false,
    );
    assert.equal((await record(approvals)).approvals.length, 2);
  });
});
