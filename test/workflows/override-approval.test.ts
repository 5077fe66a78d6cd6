/** H-08: what an override of a rotation needs once an approver set is published. */
import assert from 'node:assert/strict';
import type { WorkflowUpdateFailedError } from '@temporalio/client';
import { ActivityFailure, ApplicationFailure } from '@temporalio/common';
import { isControlError } from '../../domain/errors.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { assertOverrideApproved, type OverrideApproval, type PublishedQuorumPort } from '../../services/override-approval.ts';
import * as messages from '../../workflows/rotate-command-root/messages.ts';
import { sharedTemporal } from '../harness/temporal.ts';
import { approveOverride, createApprover, setOf, trustDomain } from './approvers.ts';
import { runRotationWorkers, startRotation, untilStatus } from './rotation-rig.ts';
import { RotationWorld } from './rotation-world.ts';

const [ann, bob, cho, stranger] = [createApprover(), createApprover(), createApprover(), createApprover()];
const words = { rotationId: 'rotate-command-root/r', kind: 'force', subject: 'fleet', reason: 'rack 7 is being scrapped' };
const portOf = (quorum: QuorumFields, domain = trustDomain): PublishedQuorumPort => ({
  published: async () => quorum,
  trustDomain: () => domain,
});
const twoOfThree = portOf(setOf([ann, bob, cho], 2));

async function refusal(
  port: PublishedQuorumPort,
  approvals: readonly OverrideApproval[],
  other: Partial<typeof words> = {},
): Promise<string> {
  try {
    await assertOverrideApproved(port, { ...words, ...other, approvals });
  } catch (error) {
    assert.ok(isControlError(error) && error.code === 'PERMISSION_DENIED', String(error));
    assert.equal(error.details['reason'], 'override-not-approved');
    return error.message;
  }
  throw new assert.AssertionError({ message: 'it was accepted' });
}

describe('overrides and the approver set', function () {
  this.timeout(60_000);
  const sign = (by: typeof ann, other: Parameters<typeof approveOverride>[1] = words): Promise<OverrideApproval> =>
    approveOverride(by, other);

  it('H-08 without a published set nobody is asked; with one, its threshold of distinct approvers', async () => {
    assert.deepEqual(await assertOverrideApproved(portOf(noQuorum), words), []);
    assert.deepEqual(await assertOverrideApproved(twoOfThree, { ...words, approvals: [await sign(ann), await sign(cho)] }), [
      ann.kid,
      cho.kid,
    ]);
    assert.equal(await refusal(twoOfThree, []), 'force needs the signatures of 2 approver(s), 0 hold');
    assert.match(await refusal(twoOfThree, [await sign(ann)]), /2 approver\(s\), 1 hold$/);
    assert.match(
      await refusal(twoOfThree, [await sign(ann), await sign(ann)]),
      new RegExp(`1 hold \\(${ann.kid.slice(0, 16)}: duplicate\\)$`),
    );
    assert.match(await refusal(twoOfThree, [await sign(ann), await sign(stranger)]), /1 hold \(.{16}: unknown-key\)$/);
    const borrowed = { kid: bob.kid, sig: (await sign(ann)).sig };
    assert.match(await refusal(twoOfThree, [await sign(ann), borrowed]), /1 hold \(.{16}: bad-signature\)$/);
  });

  it('H-08 a threshold of 0 in the published set still asks for one', async () => {
    assert.match(await refusal(portOf(setOf([ann], 0)), []), /needs the signatures of 1 approver/);
  });

  for (const [what, other] of [
    ['another rotation', { rotationId: 'rotate-command-root/s' }],
    ['another kind', { kind: 'exclude' }],
    ['another gate or node', { subject: 'confirm' }],
    ['another reason', { reason: 'rack 8 is being scrapped' }],
  ] as const) {
    it(`H-08 a signature is for one override: not for ${what}`, async () => {
      const signed = [await sign(ann), await sign(bob)];
      assert.match(await refusal(twoOfThree, signed, other), /0 hold/);
    });
  }

  it('H-08 a signature made for another deployment is none here', async () => {
    const signed = [await sign(ann, { ...words, domain: 'staging.example' }), await sign(bob, { ...words, domain: 'staging.example' })];
    assert.match(await refusal(twoOfThree, signed), /0 hold/);
  });

  it('H-08 a running rotation refuses force, exclude and abort without approvers, takes them with, and audits who approved', async () => {
    const temporal = await sharedTemporal();
    const world = new RotationWorld({ 'node-1': {}, 'node-late': { obedient: false } });
    world.times = { overlapMs: 60_000, dropMarginMs: 10, workerLifetimeMs: 400 };
    world.approvers = setOf([ann, bob, cho], 2);
    const workers = await runRotationWorkers(temporal, world);
    const handle = await startRotation(temporal.client);
    try {
      const { rotationId } = await untilStatus(handle, ({ phase, behind }) => phase === 'waiting-fleet' && behind !== null);
      const signed = { actor: 'ann', reason: 'scrapped' };
      for (const [update, message] of [
        [messages.force, { phase: 'fleet', ...signed }],
        [messages.exclude, { node: 'node-late', ...signed }],
        [messages.abort, signed],
      ] as const) {
        await assert.rejects(
          handle.executeUpdate(update as typeof messages.abort, { args: [message] }),
          (error: WorkflowUpdateFailedError) => {
            const failure = error.cause instanceof ActivityFailure ? error.cause.cause : error.cause;
            assert.ok(failure instanceof ApplicationFailure && failure.type === 'PERMISSION_DENIED', String(failure));
            assert.match(failure.message, /needs the signatures of 2 approver\(s\), 0 hold/);
            return true;
          },
        );
      }
      // Forged, and by signal: nothing is recorded, nothing is opened.
      await handle.signal(messages.forceSignal, { phase: 'fleet', ...signed, approvals: [{ kid: ann.kid, sig: 'A'.repeat(86) }] });
      assert.deepEqual(world.audited, []);
      const about = { rotationId, kind: 'exclude', subject: 'node-late', reason: signed.reason };
      const approvals = [await approveOverride(ann, about), await approveOverride(cho, about)];
      await handle.executeUpdate(messages.exclude, { args: [{ node: 'node-late', ...signed, approvals }] });
      await untilStatus(handle, ({ phase }) => phase === 'waiting-drop');
      assert.deepEqual(
        world.audited.map(({ action, subject, details }) => ({ action, subject, details })),
        [{ action: 'rotation.exclude', subject: 'node-late', details: { approvedBy: [ann.kid, cho.kid] } }],
      );
    } finally {
      await handle.terminate('the test is over').catch(() => undefined);
      await workers.stop();
    }
  });
});
