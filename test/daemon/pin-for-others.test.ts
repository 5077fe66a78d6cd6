import assert from 'node:assert/strict';
import { type HeldQuorum, pinForOthers } from '../../daemon/quorum/held-quorum.ts';
import { approverSetDigest, noQuorum } from '../../pki/trust/index.ts';
import { createApprover, quorumOfApprovers } from '../harness/approvers.ts';

describe('PIN-001 what a machine that joins by a daemon’s word is pinned to', () => {
  const fields = quorumOfApprovers({ approvers: [createApprover(), createApprover()], approverSetEpoch: 3 });
  const [own, none] = ['a1'.repeat(32), null];
  const cases: [what: string, held: HeldQuorum, pin: string | null, expected: string | null][] = [
    ['the set that is enforced here', { kind: 'held', fields, epoch: 3 }, none, approverSetDigest(fields)],
    ['that set, and not the first one, which it followed', { kind: 'held', fields, epoch: 3 }, own, approverSetDigest(fields)],
    ['the pin, while no set was taken', { kind: 'held', fields: noQuorum, epoch: 0 }, own, own],
    ['nothing, where nothing is known', { kind: 'held', fields: noQuorum, epoch: 0 }, none, null],
    ['nothing, after the approvers took their set away', { kind: 'held', fields: noQuorum, epoch: 4 }, own, null],
    ['the pin, where the set cannot be read', { kind: 'unreadable', why: 'it is damaged' }, own, own],
  ];
  for (const [what, held, pin, expected] of cases) it(what, () => assert.equal(pinForOthers(held, pin), expected));
});
