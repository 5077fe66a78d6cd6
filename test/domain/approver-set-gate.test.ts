import assert from 'node:assert/strict';
import { type ApproverFleetFacts, judgeApproverFleet } from '../../domain/rotation/approver-set-gate.ts';

const now = 1_000_000;
const all: ApproverFleetFacts = { connected: 3, behind: 0, sample: [], lastPresenceWriteAt: now };
const judge = (facts: Partial<ApproverFleetFacts>): ReturnType<typeof judgeApproverFleet> =>
  judgeApproverFleet({ ...all, ...facts }, { epoch: 4, now });

describe('the gate of an approver set', () => {
  it('opens when every connected machine enforces it', () => assert.deepEqual(judge({}), { kind: 'open' }));

  it('H-01 never opens on an empty fleet, nor on what is known from long ago', () => {
    const reasonOf = (facts: Partial<ApproverFleetFacts>): string => {
      const verdict = judge(facts);
      return verdict.kind === 'open' ? 'open' : verdict.reason;
    };
    assert.equal(reasonOf({ connected: 0 }), 'no-connected-node');
    assert.equal(reasonOf({ lastPresenceWriteAt: null }), 'presence-stalled');
    assert.equal(reasonOf({ lastPresenceWriteAt: now - 120_001 }), 'presence-stalled');
  });

  it('names a few of those behind with the epoch each holds, 0 for none', () => {
    const sample = [
      { nodeId: 'node-1', epoch: 3 },
      { nodeId: 'node-2', epoch: null },
    ];
    assert.deepEqual(judge({ behind: 2, sample }), {
      kind: 'closed',
      reason: 'nodes-behind',
      message: '2 of 3 connected machine(s) enforce another approver set than epoch 4 (node-1 at epoch 3, node-2 at epoch 0)',
      behind: ['node-1', 'node-2'],
    });
  });
});
