/** What the workflow of a batch believes of what it is told: whoever may write to the namespace starts it, and completes its activities. */
import assert from 'node:assert/strict';
import { describeBatch } from '../../workflows/approve-batch/details.ts';
import { parseApproveBatch } from '../../workflows/approve-batch/messages.ts';
import { BatchRun } from '../../workflows/approve-batch/state.ts';

const honest = {
  batchId: 'b-1',
  state: 'pending',
  endedBecause: '',
  reason: 'firmware',
  root: 'a1'.repeat(32),
  size: 2,
  required: 2,
  approvals: [{ kid: 'c3'.repeat(32), at: 0 }],
  notAfter: 1_000,
  createdBy: 'ann',
  proposedBy: '',
};

describe('approveBatch: facts made by hand', () => {
  const told = (facts: unknown): string => {
    const run = new BatchRun('b-1', 0);
    run.enter('waiting-approvals', 0);
    run.take(facts);
    return describeBatch(run.status());
  };

  it('shows the facts of the database, with the line to copy', () => {
    assert.match(told(honest), new RegExp(`batch approve b-1 --key <file> --root ${honest.root}\``));
  });

  it('puts nothing into a line to copy that a shell would read', () => {
    for (const root of ['$(reboot)', `${'a'.repeat(63)};reboot`, '', 'A1'.repeat(32)])
      assert.doesNotMatch(told({ ...honest, root }), /reboot|--root [^a]/, root);
    for (const batchId of ['x; reboot', '$(reboot)', 'x`reboot`', '-h', 'a/b', 'x|y', 'x\u202ey'])
      assert.throws(() => parseApproveBatch({ batchId }), /batchId must be/, batchId);
    for (const batchId of [`b-${'0'.repeat(32)}`, 'bat_7f3a', 'a1-77.2']) assert.deepEqual(parseApproveBatch({ batchId }), { batchId });
  });

  it('is not stopped by facts that cannot be shown', () => {
    for (const bent of [
      { approvals: [null] },
      { approvals: [{ kid: 7, at: 0 }] },
      { approvals: [{ kid: '`id`', at: 0 }] },
      { approvals: [{ kid: honest.root, at: 'now' }] },
      { approvals: Array(10_001).fill(honest.approvals[0]) },
      { notAfter: Number.NaN },
      { notAfter: 1e300 },
      { size: 1.5 },
    ])
      assert.doesNotThrow(() => assert.doesNotMatch(told({ ...honest, ...bent }), /approvals:|root:/), JSON.stringify(bent).slice(0, 80));
  });
});
