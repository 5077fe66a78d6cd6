/** rotateApproverSet on a real server: who may change who approves, and when the change counts as done. */
import assert from 'node:assert/strict';
import { WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { ActivityFailure, ApplicationFailure } from '@temporalio/common';
import type { ApproverChange } from '../../activities/approver-set-control.ts';
import { createApproverSetActivities, createApproverSetSigningActivities } from '../../activities/approver-set-control.ts';
import { ControlError } from '../../domain/errors.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import * as messages from '../../workflows/rotate-approver-set/messages.ts';
import { activitiesAlone, sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { ApproverWorld } from './approver-world.ts';
import { approveOverride, approveSet, createApprover, setOf, type TestApprover } from './approvers.ts';
import { type RunningWorkers, running } from './rotation-rig.ts';

const [ann, bob, cho, dee] = [createApprover(), createApprover(), createApprover(), createApprover()];
const held = setOf([ann, bob, cho], 2, 1);
const next = setOf([bob, cho, dee], 2, 2);
const words = { actor: 'ann', reason: 'dee follows ann' };

type Handle = WorkflowHandle<() => Promise<messages.ApproverSetResult>>;

async function changeOf(
  set: QuorumFields,
  signers: readonly TestApprover[],
  epoch = Number(set.approverSetEpoch),
): Promise<ApproverChange> {
  return {
    epoch,
    approvers: set.approverKeys.map(({ spki }) => Buffer.from(spki).toString('base64')),
    threshold: set.approverThreshold,
    tiers: [],
    unbatchedPerHour: 0,
    signatures: await Promise.all(signers.map((by) => approveSet(by, set, { epoch }))),
  };
}

async function refusedBy(handle: Handle): Promise<string> {
  const error = await handle.result().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof WorkflowFailedError, String(error));
  const cause = error.cause instanceof ActivityFailure ? error.cause.cause : error.cause;
  assert.ok(cause instanceof ApplicationFailure, String(cause));
  return `${cause.type}: ${cause.message}`;
}

describe('rotateApproverSet', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let handle: Handle | undefined;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await handle?.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const runWorkers = async (world: ApproverWorld): Promise<void> => {
    const control = await temporal.createWorker({
      taskQueue: taskQueues.control,
      activities: createApproverSetActivities(world),
      ...activitiesAlone,
    });
    const signing = await temporal.createWorker({
      taskQueue: taskQueues.signing,
      activities: createApproverSetSigningActivities(world),
      ...activitiesAlone,
    });
    workers = running([control, signing]);
  };
  const begin = async (
    world: ApproverWorld,
    change: ApproverChange,
    workflowId: string = workflowIds.rotateApproverSet,
  ): Promise<Handle> => {
    if (workers === undefined) await runWorkers(world);
    handle = await temporal.client.workflow.start<() => Promise<messages.ApproverSetResult>>('rotateApproverSet', {
      workflowId,
      taskQueue: taskQueues.control,
      args: [{ ...words, change }] as unknown as [],
    });
    return handle;
  };
  const until = async (run: Handle, holds: (status: messages.ApproverSetStatus) => boolean): Promise<messages.ApproverSetStatus> => {
    for (;;) {
      const status = await run.query(messages.status).catch(() => undefined);
      if (status !== undefined && holds(status)) return status;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };

  it('H-10 publishes a change that the old threshold and the new one signed, waits for every machine, and leaves evidence', async () => {
    const world = new ApproverWorld(held);
    const late = world.nodes.get('node-2');
    if (late !== undefined) late.obedient = false;
    const run = await begin(world, await changeOf(next, [bob, cho]));
    const waiting = await until(run, ({ behind }) => behind !== null);
    assert.deepEqual([waiting.phase, waiting.behind?.names, waiting.trustVersion], ['waiting-fleet', ['node-2'], 2]);
    assert.match(
      waiting.behind?.message ?? '',
      /1 of 2 connected machine\(s\) enforce another approver set than epoch 2 \(node-2 at epoch 1\)/,
    );
    assert.deepEqual((await run.describe()).searchAttributes['BcWaitingOn'], ['node-2']);
    if (late !== undefined) late.obedient = true;
    const result = await run.result();
    assert.deepEqual([result.outcome, result.epoch, result.trustVersion], ['changed', 2, 2]);
    assert.deepEqual(world.evidences, [{ rotationId: result.rotationId, epoch: 2, actor: 'ann' }]);
  });

  it('the first set needs the signatures of its own threshold, and a removal those of the set that goes', async () => {
    const first = new ApproverWorld(noQuorum);
    assert.equal((await (await begin(first, await changeOf(setOf([ann, bob], 2, 1), [ann, bob]))).result()).outcome, 'changed');
    await workers?.stop();
    workers = undefined;
    const last = new ApproverWorld(held);
    const removal: ApproverChange = { ...(await changeOf({ ...noQuorum, approverSetEpoch: 2 }, [ann, bob], 2)) };
    assert.equal((await (await begin(last, removal)).result()).outcome, 'changed');
    assert.equal(last.published$.approverKeys.length, 0);
  });

  const refusals: readonly [name: string, change: () => Promise<ApproverChange>, says: RegExp][] = [
    ['no signature at all', () => changeOf(next, []), /0 of 2 approvers of the current set signed it$/],
    ['one of two current approvers', () => changeOf(next, [bob, dee]), /1 of 2 approvers of the current set signed it$/],
    [
      'a set whose own threshold has not signed',
      () => changeOf(setOf([dee, createApprover()], 2, 2), [ann, bob]),
      /0 of 2 approvers of the new set itself signed it$/,
    ],
    ['approvers of his own', () => changeOf(setOf([dee], 1, 2), [dee]), /0 of 2 approvers of the current set signed it$/],
    [
      'an epoch that is in force',
      () => changeOf(setOf([bob, cho, dee], 2, 1), [bob, cho]),
      /signed for epoch 1, epoch 1 is in force: let it be signed for 2$/,
    ],
    [
      'signatures for another epoch',
      async () => ({ ...(await changeOf(next, [bob, cho], 3)), epoch: 2 }),
      /0 of 2 approvers of the current set/,
    ],
  ];
  for (const [name, change, says] of refusals) {
    it(`H-10 refuses ${name}: nothing is stored, the workflow fails and says why`, async () => {
      const world = new ApproverWorld(held);
      assert.match(await refusedBy(await begin(world, await change())), says);
      assert.deepEqual([world.stored, world.evidences], [[], []]);
    });
  }

  it('H-10 signatures for another deployment are none here', async () => {
    const world = new ApproverWorld(held);
    const change = {
      ...(await changeOf(next, [])),
      signatures: await Promise.all([bob, cho].map((by) => approveSet(by, next, { epoch: 2, domain: 'staging.example' }))),
    };
    assert.match(await refusedBy(await begin(world, change)), /0 of 2 approvers of the current set signed it$/);
  });

  it('H-08 goes on without a machine when the approvers of the published set sign for that, and only then', async () => {
    const world = new ApproverWorld(held, ['node-1', 'node-gone']);
    const gone = world.nodes.get('node-gone');
    if (gone !== undefined) gone.obedient = false;
    const run = await begin(world, await changeOf(next, [bob, cho]));
    const { rotationId } = await until(run, ({ behind }) => behind !== null);
    const about = { rotationId, kind: 'exclude', subject: 'node-gone', reason: words.reason };
    // Ann is no approver any more: the set that is published counts.
    const stale = [await approveOverride(ann, about), await approveOverride(bob, about)];
    await assert.rejects(run.executeUpdate(messages.exclude, { args: [{ node: 'node-gone', ...words, approvals: stale }] }));
    const approvals = [await approveOverride(dee, about), await approveOverride(bob, about)];
    await run.executeUpdate(messages.exclude, { args: [{ node: 'node-gone', ...words, approvals }] });
    assert.equal((await run.result()).outcome, 'changed');
    assert.deepEqual(world.audited, [{ action: 'rotation.exclude', subject: 'node-gone', details: { approvedBy: [dee.kid, bob.kid] } }]);
  });

  it('can be aborted until it is stored, and not after', async () => {
    const world = new ApproverWorld(held);
    let broken = true;
    world.before = (call) => {
      if (call === 'store' && broken) throw new ControlError('UNAVAILABLE', 'the database is away');
    };
    const run = await begin(world, await changeOf(next, [bob, cho]));
    const { rotationId } = await until(run, ({ phase }) => phase === 'storing');
    const about = { rotationId, kind: 'abort', subject: '', reason: words.reason };
    const approvals = [await approveOverride(ann, about), await approveOverride(bob, about)];
    await run.executeUpdate(messages.abort, { args: [{ ...words, approvals }] });
    broken = false;
    assert.equal((await run.result()).outcome, 'aborted');
    assert.deepEqual(world.stored, []);
    const late = new ApproverWorld(held);
    late.publishes = false;
    await workers?.stop();
    workers = undefined;
    const again = await begin(late, await changeOf(next, [bob, cho]));
    await until(again, ({ phase }) => phase === 'waiting-publication');
    await assert.rejects(again.executeUpdate(messages.abort, { args: [words] }), (error: Error) => {
      assert.match(String(error.cause), /the set is published: what leads back is another change, signed by its approvers/);
      return true;
    });
  });

  for (const call of ['store', 'store.done', 'published', 'fleet', 'evidence']) {
    it(`${call} fails once: stored once, one evidence`, async () => {
      const world = new ApproverWorld(held);
      let failed = false;
      world.before = (name) => {
        if (name !== call || failed) return;
        failed = true;
        throw new ControlError('UNAVAILABLE', 'a lost answer');
      };
      await (await begin(world, await changeOf(next, [bob, cho]))).result();
      assert.deepEqual([world.stored, world.evidences.length], [[2], 1]);
    });
  }

  it('a run that was terminated behind its store is taken up by the next start with the same change', async () => {
    const world = new ApproverWorld(held);
    world.publishes = false;
    const change = await changeOf(next, [bob, cho]);
    const first = await begin(world, change);
    await until(first, ({ phase }) => phase === 'waiting-publication');
    await first.terminate('by mistake');
    world.publishes = true;
    assert.equal((await (await begin(world, change)).result()).outcome, 'changed');
    assert.deepEqual(world.stored, [2]);
  });

  it('runs under its one id, reads its input strictly', async () => {
    const world = new ApproverWorld(held);
    assert.match(
      await refusedBy(await begin(world, await changeOf(next, []), 'rotate-approver-set-2')),
      /under the workflow id rotate-approver-set only/,
    );
    assert.throws(
      () => messages.readChange({ epoch: '2', approvers: [7], threshold: -1, signatures: [{}], keys: [] }),
      /keys is not a known field.*epoch must be a whole number, got a string; .*signatures must be a list/s,
    );
  });
});
