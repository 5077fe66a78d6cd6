/** The fields of a quorum on the wire, and what a command acts on. */
import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { batchSubject } from '../../../pki/quorum/index.ts';
import {
  BatchApprovalSchema,
  BatchProofSchema,
  CommandBodySchema,
  CommandRejectReason,
  CommandSchema,
  NodeRebootSchema,
  TrustBundleSchema,
} from '../../../proto/index.ts';
import { refusal } from '../support.ts';

describe('the wire', () => {
  const numbers = (
    schema: { readonly fields: readonly { readonly name: string; readonly number: number }[] },
    ...names: string[]
  ): unknown => Object.fromEntries(schema.fields.filter(({ name }) => names.includes(name)).map(({ name, number }) => [name, number]));

  it('QUO-031 QUO-032 QUO-033 a command says its batch in the signed body, and its approval and proof beside it', () => {
    assert.deepEqual(numbers(CommandBodySchema, 'batch_id', 'batch_approval'), { batch_id: 7 });
    assert.deepEqual(numbers(CommandSchema, 'batch_approval', 'batch_proof', 'batch_id'), { batch_approval: 3, batch_proof: 4 });
    assert.deepEqual(numbers(BatchApprovalSchema, 'batch_id', 'scope_root', 'scope_size', 'not_after_ms', 'signatures'), {
      batch_id: 1,
      scope_root: 2,
      scope_size: 3,
      not_after_ms: 4,
      signatures: 5,
    });
    assert.deepEqual(numbers(BatchProofSchema, 'index', 'siblings'), { index: 1, siblings: 2 });
  });

  it('QUO-035 QUO-036 QUO-037 QUO-038 QUO-039 H-10 a trust bundle says who approves, and who did', () => {
    assert.deepEqual(
      numbers(
        TrustBundleSchema,
        'approver_keys',
        'approver_threshold',
        'quorum_tiers',
        'unbatched_destructive_per_hour',
        'approver_set_signatures',
        'approver_set_changes',
      ),
      {
        approver_keys: 3,
        approver_threshold: 4,
        quorum_tiers: 5,
        unbatched_destructive_per_hour: 6,
        approver_set_signatures: 7,
        approver_set_changes: 11,
      },
    );
  });

  it('QUO-041 a daemon can say why', () => {
    assert.deepEqual([CommandRejectReason.BATCH_UNAPPROVED, CommandRejectReason.UNBATCHED_LIMIT], [13, 14]);
  });
});

describe('what a command acts on', () => {
  const payload = create(NodeRebootSchema, { reason: 'node_2' });

  it('QUO-027 QUO-028 is the executing node for its own kinds, whatever its payload says', () => {
    assert.equal(batchSubject({ nodeId: 'node_1', kind: 'node.reboot', payload }), 'node_1');
  });

  it('QUO-028 a kind that does not exist acts on nothing', () => {
    assert.throws(
      () => batchSubject({ nodeId: 'node_1', kind: 'node.explode\u001b', payload }),
      refusal('UNSUPPORTED', 'unknown-kind', /no command kind "node.explode\\u001b"/),
    );
  });
});
