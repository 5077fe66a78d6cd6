/** What the change of an approver set shows of a plan that somebody made by hand: whoever may write to the namespace completes its activities. */
import assert from 'node:assert/strict';
import { describeApproverSet } from '../../workflows/rotate-approver-set/details.ts';
import { ApproverSetState } from '../../workflows/rotate-approver-set/state.ts';

describe('rotateApproverSet: a plan made by hand', () => {
  const change = { epoch: 2, approvers: [], threshold: 0, tiers: [], unbatchedPerHour: 0, signatures: [] };
  const shown = (planned: unknown): string => {
    const state = new ApproverSetState({ rotationId: 'r', start: { actor: 'ann', reason: 'x' }, change, now: 0 });
    state.takePlan(planned);
    return describeApproverSet(state.status());
  };
  const honest = { epoch: 1, sha256: 'a1'.repeat(32), approvers: 3, threshold: 2 };

  it('shows the sets of an honest one', () => {
    assert.match(
      shown({ from: honest, to: { ...honest, epoch: 2, approvers: 0, sha256: null }, byOld: [], byNew: [] }),
      /approvers: 2 of 3 \(epoch 1, a1a1a1a1a1a1\) → no approvers \(epoch 2\)/,
    );
  });

  it('is neither stopped by garbage nor writes it down', () => {
    for (const bent of [
      null,
      7,
      {},
      { from: {}, to: {} },
      { from: { ...honest, sha256: 7 }, to: honest },
      { from: honest, to: { ...honest, sha256: '`$(reboot)`' } },
    ])
      assert.match(shown(bent), /approvers: \? → \?/, JSON.stringify(bent));
    assert.match(shown({ from: { ...honest, approvers: '`$(reboot)`' }, to: honest }), /approvers: \? → \?/);
  });
});
