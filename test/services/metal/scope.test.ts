import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { defaultMaxHours } from '../../../cli/batch/review.ts';
import { commandKinds } from '../../../domain/commands/kinds.ts';
import type { PlannedAction } from '../../../domain/metal/plan.ts';
import { profileCommandKinds } from '../../../domain/metal/profile.ts';
import { ownStepsOf } from '../../../domain/metal/profile-steps.ts';
import { stepsOf } from '../../../domain/metal/steps.ts';
import { hour } from '../../../domain/time.ts';
import { batchSubject, decodeProof, verifyQuorum } from '../../../pki/quorum/index.ts';
import { BatchApprovalSchema, BatchProofSchema, DiskWipeSchema, driver, protocolRegistry, site } from '../../../proto/index.ts';
import { type CommandRequest, enqueueCommands } from '../../../services/command-queue.ts';
import { createRunBatch, encodePlannedPayload, finishRun, leavesOfRun, metalBatchScope, planRun } from '../../../services/metal/index.ts';
import { encodeStepPayload } from '../../../services/metal/step-payloads.ts';
import { getRun, plannedSteps } from '../../../services/metal/stored-run.ts';
import type { RunPlan } from '../../../services/metal/types.ts';
import { goodProfile, invokeStep, requestStep } from '../../domain/metal/profiles.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { approve, batchWorker, publishQuorum, twoOfThree } from '../batch-support.ts';
import { addNode, refused, sha256, trustDomain } from '../support.ts';
import { addSite, availableMachine, bootRamdisk, commandIdOf, now, runOf, siteId } from './support.ts';

describe('scopes of runs', () => {
  const used = useDatabase();
  const context = { now, trustDomain };

  before(async function () {
    this.timeout(30_000);
    await publishQuorum(used.db);
    await addSite(used.db);
    for (const id of ['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8', 'm9', 'm10', 'm11']) await availableMachine(used.db, id);
  });

  const scopeOf = (nodes: readonly string[], kinds: readonly string[]) =>
    used.db.transaction((tx) => metalBatchScope(tx, commandKinds, nodes, kinds));

  it('BATCLI-031 a run that is short itself is signed under the default of 72 h, and none needs more than the runbook’s 168 h', () => {
    const hoursOf = (kind: 'provision' | 'retire' | 'rotate-bmc', profile: Parameters<typeof plannedSteps>[1]): number =>
      plannedSteps(kind, profile).reduce((sum, { deadlineMs }) => sum + deadlineMs, 0) / hour;
    const slow = goodProfile();
    const slowest = { ...slow, start: { ...slow.start, joinWithinMs: 6 * hour } };
    assert.ok(hoursOf('rotate-bmc', null) <= defaultMaxHours);
    assert.ok(hoursOf('provision', slowest) <= 168 && hoursOf('retire', slowest) <= 168);
  });

  it('BAT-032 BAT-033 BAT-038 one leaf a machine and destructive kind, open for any payload, and none for the others', async () => {
    assert.deepEqual(await scopeOf(['m1', 'm2'], ['diag.disks', 'disk.wipe', 'boot.prepareRamdisk', 'deploy.image', 'disk.wipe']), [
      { subject: 'm1', kind: 'disk.wipe' },
      { subject: 'm1', kind: 'deploy.image' },
      { subject: 'm2', kind: 'disk.wipe' },
      { subject: 'm2', kind: 'deploy.image' },
    ]);
    assert.deepEqual(await scopeOf(['m1'], ['bmc.inventory', 'diag.dcgm']), []);
  });

  it('BAT-034 for a bmc kind one leaf for each active site agent of the machine’s site and tenant', async () => {
    await addNode(used.db, 'agent-away', 'site');
    await used.db.query({ text: `update nodes set state = 'revoked' where id = 'agent-away'` });
    await used.db.query({ text: `insert into sites (id) values ('paris') on conflict do nothing` });
    await addNode(used.db, 'agent-paris', 'site');
    await used.db.query({ text: `update nodes set site_id = 'paris' where id = 'agent-paris'` });
    await addNode(used.db, 'agent-tenant', 'site');
    await used.db.query({ text: `insert into tenants (id) values ('acme')` });
    await used.db.query({ text: `update nodes set tenant_id = 'acme' where id = 'agent-tenant'` });
    assert.deepEqual(await scopeOf(['m1', 'm2'], ['bmc.rotate']), [
      { subject: 'bmc:agent-a/m1.bmc.example', kind: 'bmc.rotate' },
      { subject: 'bmc:agent-b/m1.bmc.example', kind: 'bmc.rotate' },
      { subject: 'bmc:agent-a/m2.bmc.example', kind: 'bmc.rotate' },
      { subject: 'bmc:agent-b/m2.bmc.example', kind: 'bmc.rotate' },
    ]);
  });

  it('refuses what no leaf can be made of', async () => {
    await assert.rejects(scopeOf(['m1', 'nobody'], ['disk.wipe']), refused('NOT_FOUND', /no machine is called nobody/));
    await assert.rejects(scopeOf(['m1'], ['disk.shred']), refused('INVALID_INPUT', /there is no command kind disk\.shred/, 'unknown-kind'));
    await assert.rejects(
      scopeOf(['agent-a'], ['bmc.power']),
      refused('INVALID_STATE', /has no management controller on record/, 'no-controller'),
    );
  });

  const payloadOf = (plan: RunPlan, action: PlannedAction): Uint8Array =>
    encodePlannedPayload({ machineId: plan.machineId, runId: plan.runId, bmc: plan.bmc }, action);
  const powerCommand = (
    plan: RunPlan,
    batchId: string,
    { action, agent = 'agent-a' }: { action: PlannedAction; agent?: string },
  ): CommandRequest => ({
    id: commandIdOf(plan, `${action.kind}-${action.ordinal}-${agent}.1`),
    nodeId: agent,
    kind: action.kind,
    payload: payloadOf(plan, action),
    deadlineMs: now + hour,
    requestedBy: 'olga',
    batchId,
  });
  const enqueue = async (commands: readonly CommandRequest[]) =>
    enqueueCommands({ db: used.db, worker: await batchWorker(used.db), trustDomain, now, commands });

  it('BAT-030 BAT-035 a run has one batch with every destructive command it may send, before it sends the first; asked again, the same', async () => {
    const plan = await planRun(used.db, runOf('m1', 'provision'));
    const batch = await createRunBatch(used.db, plan.runId, context);
    assert.ok(batch?.created === true && batch.held);
    const kinds = plan.leaves.map(({ kind }) => kind);
    assert.deepEqual([...new Set(kinds)].sort(), ['bmc.boot', 'bmc.power', 'boot.kexec', 'deploy.image', 'disk.wipe']);
    assert.equal(batch.size, 3 + 2 * (3 + 4));
    assert.deepEqual(await leavesOfRun(used.db, plan.runId), plan.leaves);
    const rotation = await planRun(used.db, runOf('m8', 'rotate-bmc'));
    const small = await createRunBatch(used.db, rotation.runId, context);
    assert.equal(small?.size, 2, 'bmc.rotate at either agent');
    await addNode(used.db, 'agent-late', 'site');
    assert.equal(
      (await createRunBatch(used.db, rotation.runId, context))?.batchId,
      small?.batchId,
      'also when the site has another agent meanwhile',
    );
    const again = await createRunBatch(used.db, plan.runId, context);
    assert.deepEqual([again?.batchId, again?.created], [batch.batchId, false]);
    await used.db.query({ text: `update nodes set state = 'revoked' where id = 'agent-late'` });
    const inspection = await planRun(used.db, runOf('m2', 'inspect'));
    assert.equal(await createRunBatch(used.db, inspection.runId, context), null);
  });

  it('MT1 every planned boot setting and power action runs under one approved batch, at either agent, and a fifth power action has no leaf', async () => {
    const plan = await planRun(used.db, runOf('m3', 'provision'));
    const batch = await createRunBatch(used.db, plan.runId, context);
    assert.ok(batch !== null);
    await approve(used.db, batch.batchId);
    const planned = plan.actions.flatMap((action) =>
      ['agent-a', 'agent-b'].map((agent) => powerCommand(plan, batch.batchId, { action, agent })),
    );
    assert.equal((await enqueue(planned)).enqueued.length, 14);
    const fifth: PlannedAction = { kind: 'bmc.power', ordinal: 5, purpose: 'off', action: 'cycle' };
    await assert.rejects(
      enqueue([powerCommand(plan, batch.batchId, { action: fifth })]),
      refused('INVALID_INPUT', /is not in the scope of batch/, 'not-in-scope'),
    );
    const other = { ...plan.actions.find(({ kind }) => kind === 'bmc.power'), action: 'off-hard' } as PlannedAction;
    await assert.rejects(
      enqueue([{ ...powerCommand(plan, batch.batchId, { action: other }), id: commandIdOf(plan, 'power.9') }]),
      refused('INVALID_INPUT', /is not in the scope/, 'not-in-scope'),
    );
    await judgeAtMachine(plan, batch.batchId, fifth);
  });

  /** What the site agent itself says, with what travels beside a command: the queue is not what keeps a machine safe. */
  async function judgeAtMachine(plan: RunPlan, batchId: string, fifth: PlannedAction): Promise<void> {
    const [row] = await used.db.query<{ approval: Buffer }>({ text: 'select approval from command_batches where id = $1' }, [batchId]);
    const approval = fromBinary(BatchApprovalSchema, row?.approval ?? new Uint8Array(0));
    const leaves = await used.db.query<{ kind: string; proof: Buffer }>(
      { text: 'select kind, proof from command_batch_scope where batch_id = $1' },
      [batchId],
    );
    const verdicts = (action: PlannedAction) => {
      const any = fromBinary(AnySchema, payloadOf(plan, action));
      const payload = anyUnpack(any, protocolRegistry);
      assert.ok(payload !== undefined);
      const subject = batchSubject({ nodeId: 'agent-a', kind: action.kind, payload });
      const leaf = { subject, kind: action.kind, payloadSha256: sha256(any.value) };
      return leaves.map(({ proof }) => {
        const { index, siblings } = decodeProof(proof);
        const message = create(BatchProofSchema, { index: BigInt(index), siblings: [...siblings] });
        return verifyQuorum({ quorum: twoOfThree, batchId, leaf, approval, proof: message, trustDomain, now });
      });
    };
    const used_ = plan.actions.map((action) => verdicts(action).filter(({ ok }) => ok));
    assert.ok(
      used_.every((good) => good.length === 1),
      'each planned action has exactly one leaf at this agent',
    );
    assert.equal(new Set(used_.flat().map((one) => (one.ok ? one.leafHash : ''))).size, 7, 'and no two share one: a leaf counts once');
    const refusals = verdicts(fifth);
    assert.ok(refusals.length === 17 && refusals.every((one) => !one.ok && one.reason === 'not-in-scope'));
  }

  it('MT1 a profile that turns the machine off, on, and boots it once more has a leaf for each', async () => {
    const profile = goodProfile();
    const plan = await planRun(used.db, runOf('m4', 'provision', { profile: { ...profile, boot: { ...profile.boot, graceful: true } } }));
    const batch = await createRunBatch(used.db, plan.runId, context);
    assert.ok(batch !== null);
    await approve(used.db, batch.batchId);
    const powers = plan.actions.filter(({ kind }) => kind === 'bmc.power');
    assert.deepEqual(
      powers.map((one) => one.kind === 'bmc.power' && one.action),
      ['off-soft', 'on', 'cycle', 'cycle', 'off-hard'],
    );
    assert.equal((await enqueue(powers.map((action) => powerCommand(plan, batch.batchId, { action })))).enqueued.length, 5);
    const sixth: PlannedAction = { kind: 'bmc.power', ordinal: 6, purpose: 'off', action: 'cycle' };
    await assert.rejects(
      enqueue([powerCommand(plan, batch.batchId, { action: sixth })]),
      refused('INVALID_INPUT', /not in the scope/, 'not-in-scope'),
    );
  });

  it('the payload of a planned action names references alone, and every field that decides where it goes', () => {
    const target = {
      machineId: 'm',
      runId: 'r',
      bmc: { address: 'b', systemId: 's', credentialRef: 'secret://bmc/m', pinSha256: 'e'.repeat(64) },
    };
    const any = fromBinary(AnySchema, encodePlannedPayload(target, { kind: 'bmc.power', ordinal: 3, purpose: 'off', action: 'off-hard' }));
    const message = fromBinary(site.BmcPowerSchema, any.value);
    const { address, nodeId, credentialRef, pinSha256, systemId, action, runId, ordinal } = message;
    assert.deepEqual(
      { address, nodeId, credentialRef, pinSha256, systemId, action, runId, ordinal },
      {
        address: 'b',
        nodeId: 'm',
        credentialRef: 'secret://bmc/m',
        pinSha256: 'e'.repeat(64),
        systemId: 's',
        action: site.PowerAction.OFF_HARD,
        runId: 'r',
        ordinal: 3,
      },
    );
  });

  const wipeOf = (plan: RunPlan, changes: Partial<CommandRequest> = {}): CommandRequest => ({
    id: commandIdOf(plan, 'wipe.1'),
    nodeId: plan.machineId,
    kind: 'disk.wipe',
    payload: toBinary(AnySchema, anyPack(DiskWipeSchema, create(DiskWipeSchema, { runId: plan.runId }))),
    deadlineMs: now + hour,
    requestedBy: 'olga',
    ...changes,
  });

  it('BAT-036 BAT-037 what a step has declared is in the batch; what it has not is refused at the queue, in a batch and without one', async () => {
    const declared = await planRun(used.db, runOf('m5', 'provision'));
    const batch = await createRunBatch(used.db, declared.runId, context);
    assert.ok(batch !== null);
    await bootRamdisk(used.db, declared);
    assert.equal((await enqueue([wipeOf(declared, { batchId: batch.batchId })])).held.length, 1);

    // The same steps, of which the one that wipes has forgotten to say so: its kind is in no scope that is made of them.
    const forgetful = stepsOf.provision.map(({ name, sends }) => (name === 'wipe' ? { name } : { name, sends }));
    const kinds = profileCommandKinds(goodProfile(), forgetful);
    assert.ok(!kinds.includes('disk.wipe'));
    const rotation = await planRun(used.db, runOf('m6', 'rotate-bmc'));
    const small = await createRunBatch(used.db, rotation.runId, context);
    assert.ok(small !== null);
    await used.db.query({ text: `update nodes set role = 'ramdisk' where id = 'm6'` });
    await assert.rejects(
      enqueue([wipeOf(rotation, { batchId: small.batchId })]),
      refused('INVALID_INPUT', /disk\.wipe on m6 with this payload is not in the scope/, 'not-in-scope'),
    );
    await assert.rejects(enqueue([wipeOf(rotation)]), refused('INVALID_STATE', /disk\.wipe is destructive/, 'batch-required'));
  });

  it('BAT-035 BAT-036 BAT-038 what a profile’s own steps destroy is in the batch, bound to the very bytes that are sent; what does no harm is not', async () => {
    const steps = [invokeStep(), requestStep(), requestStep({ name: 'poll' }, { method: 'GET', body: '' })];
    const plan = await planRun(used.db, runOf('m11', 'provision', { profile: goodProfile({ steps }) }));
    const without = await planRun(used.db, runOf('m9', 'provision', { profile: goodProfile() }));
    const own = plan.leaves.filter(({ kind }) => kind === 'driver.invoke' || kind === 'site.httpProxy');
    assert.equal(plan.leaves.length, without.leaves.length + 2);
    assert.deepEqual(
      own.map(({ subject, kind }) => [subject, kind]),
      [
        ['m11', 'driver.invoke'],
        ['node:m11', 'site.httpProxy'],
      ],
    );
    const [call, request] = own.map(({ payload }) => payload?.value ?? assert.fail('a leaf of a step is bound'));
    const { plugin, input, harmless, runId } = fromBinary(driver.DriverInvokeSchema, call as Uint8Array);
    assert.deepEqual([plugin, Buffer.from(input).toString(), harmless, runId], ['nic', 'm11', false, plan.runId]);
    const { nodeId, method, url, body } = fromBinary(site.SiteHttpProxySchema, request as Uint8Array);
    assert.deepEqual(
      [nodeId, method, url, Buffer.from(body).toString()],
      ['m11', 'POST', 'https://m11.example/apply', `run ${plan.runId}`],
    );
    assert.deepEqual(plan.steps.map(({ name }) => name).slice(-4), ['provisioned-join', 'talos', 'poll', 'clean-up']);

    // In the batch the request's own bytes are taken in, and no others.
    const batch = await createRunBatch(used.db, plan.runId, context);
    assert.ok(batch !== null);
    const sent = (value: Uint8Array, id: string) => ({
      id: `${plan.workflowId}/${plan.runId}/${id}`,
      nodeId: 'agent-a',
      kind: 'site.httpProxy',
      payload: toBinary(AnySchema, create(AnySchema, { typeUrl: 'type.googleapis.com/bettercompute.site.v1.SiteHttpProxy', value })),
      deadlineMs: now + hour,
      requestedBy: 'ada',
      batchId: batch.batchId,
    });
    assert.equal((await enqueue([sent(request as Uint8Array, 'request.1')])).held.length, 1);
    const other = toBinary(site.SiteHttpProxySchema, create(site.SiteHttpProxySchema, { nodeId, method, url, body: Buffer.from('other') }));
    await assert.rejects(
      enqueue([sent(other, 'request.2')]),
      refused('INVALID_INPUT', /site\.httpProxy on node:m11 with this payload is not in the scope/, 'not-in-scope'),
    );
  });

  it('BAT-037 a step that has not said what it sends has no leaf: its command is refused at the queue, in the batch and without one', async () => {
    // Planned before plans refused it, or by whoever writes to the database.
    const { runId } = await planRun(used.db, runOf('m10', 'provision', { profile: goodProfile({ steps: [requestStep()] }) }));
    await used.db.query({ text: `update metal_runs set profile = profile #- '{steps,0,sends}' where id = $1` }, [runId]);
    const run = await getRun(used.db, runId);
    const plan = { ...run, runId, leaves: await leavesOfRun(used.db, runId) };
    assert.ok(plan.leaves.every(({ kind }) => kind !== 'site.httpProxy'));
    const batch = await createRunBatch(used.db, plan.runId, context);
    assert.ok(batch !== null);
    const [step] = ownStepsOf(plan.profile);
    assert.ok(step);
    const command = {
      id: `${plan.workflowId}/${plan.runId}/request.1`,
      nodeId: 'agent-a',
      kind: 'site.httpProxy',
      payload: encodeStepPayload(step, plan),
      deadlineMs: now + hour,
      requestedBy: 'ada',
    };
    await assert.rejects(
      enqueue([{ ...command, batchId: batch.batchId }]),
      refused('INVALID_INPUT', /is not in the scope of batch/, 'not-in-scope'),
    );
    await assert.rejects(enqueue([command]), refused('INVALID_STATE', /site\.httpProxy is destructive/, 'batch-required'));
  });

  it('BAT-030 a run that has ended gets no batch: nothing of it is approved behind its end', async () => {
    const { runId } = await planRun(used.db, runOf('m7', 'provision'));
    await finishRun(used.db, { runId, end: 'cancelled', reason: '', actor: 'olga', now });
    await assert.rejects(
      createRunBatch(used.db, runId, context),
      refused('INVALID_STATE', /^run [0-9a-f]{12} has ended: cancelled$/, 'run-ended'),
    );
    const batches = await used.db.query({ text: `select 1 from command_batches where reason like 'provision machine m7 %'` });
    assert.equal(batches.length, 0);
  });

  it('BAT-035 BAT-036 BAT-037 a step that may destroy and has not said what it sends is refused before the machine is claimed, with all of them', async () => {
    const steps = [invokeStep({ sends: undefined }), requestStep(), requestStep({ name: 'wipe-cache', sends: [] }, { method: 'DELETE' })];
    await assert.rejects(
      planRun(used.db, runOf('m7', 'provision', { profile: goodProfile({ steps }) })),
      refused(
        'INVALID_INPUT',
        /steps\[0\]\.sends: does not declare driver\.invoke, .*; steps\[2\]\.sends: does not declare site\.httpProxy, /,
        'bad-profile',
      ),
    );
    const [row] = await used.db.query<{ state: string; runs: number }>({
      text: `select state, (select count(*) from metal_runs where machine_id = 'm7' and state = 'open') as runs from machines where id = 'm7'`,
    });
    assert.deepEqual([row?.state, Number(row?.runs)], ['available', 0]);
  });

  it('BAT-037 what its profile’s own steps have not said keeps no machine from being retired: a retirement does none of them', async () => {
    const profile = goodProfile({ steps: [requestStep({ sends: undefined })] });
    const { profile: planned, leaves, runId } = await planRun(used.db, runOf('m7', 'retire', { profile }));
    assert.equal(planned?.name, profile.name);
    assert.ok(leaves.every(({ kind }) => kind !== 'site.httpProxy'));
    await finishRun(used.db, { runId, end: 'cancelled', reason: '', actor: 'olga', now });
    const again = await planRun(used.db, runOf('m7', 'retire'));
    assert.equal(again.profile?.name, profile.name, 'as it is stored');
    await finishRun(used.db, { runId: again.runId, end: 'cancelled', reason: '', actor: 'olga', now });
  });

  it('a profile whose own step cannot be is refused before the machine is claimed, with everything that is wrong', async () => {
    const steps = [invokeStep({ after: 'start', sends: ['node.reboot'] })];
    await assert.rejects(
      planRun(used.db, runOf('m7', 'provision', { profile: goodProfile({ steps }) })),
      refused(
        'INVALID_INPUT',
        /steps\[0\]\.after: nobody who runs driver\.invoke .*; steps\[0\]\.sends: declares node\.reboot/,
        'bad-profile',
      ),
    );
    const [row] = await used.db.query<{ state: string }>({ text: `select state from machines where id = 'm7'` });
    assert.equal(row?.state, 'available');
  });

  it('a site without an agent of the machine’s tenant is told before anything is claimed', async () => {
    await used.db.query({ text: `update nodes set state = 'revoked' where role = 'site' and site_id = $1` }, [siteId]);
    await availableAfterwards();
    await assert.rejects(
      planRun(used.db, runOf('lonely', 'provision')),
      refused('INVALID_STATE', /site berlin has no active site agent/, 'no-site-agent'),
    );
    const [row] = await used.db.query<{ state: string }>({ text: `select state from machines where id = 'lonely'` });
    assert.equal(row?.state, 'available');
  });

  async function availableAfterwards(): Promise<void> {
    await used.db.query({ text: `update nodes set state = 'active' where id = 'agent-a'` });
    await availableMachine(used.db, 'lonely');
    await used.db.query({ text: `update nodes set state = 'revoked' where id = 'agent-a'` });
  }
});
