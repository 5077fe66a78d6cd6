import assert from 'node:assert/strict';
import { isControlError } from '../../../domain/errors.ts';
import { hour } from '../../../domain/time.ts';
import { verifyAuditChain } from '../../../services/audit.ts';
import {
  closeBoots,
  createBootEntry,
  endRunIdentity,
  finishRun,
  observeMachine,
  overrideMachine,
  planRun,
  quarantineMachine,
  readRunFacts,
  recordEvidence,
  recordSteps,
  standingOfRun,
} from '../../../services/metal/index.ts';
import { applyMove, lockMachine } from '../../../services/metal/moves.ts';
import { goodProfile } from '../../domain/metal/profiles.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { publishQuorum } from '../batch-support.ts';
import { certificatesOf } from '../identity-support.ts';
import { certify, connect, newKey, randomBytes, refused, testBundle } from '../support.ts';
import {
  addSite,
  availableMachine,
  bootRamdisk,
  eraseBody,
  evidenceContext,
  now,
  runOf,
  sendCall,
  sendWipe,
  signBody,
  stateOf,
} from './support.ts';

describe('runs of machines', () => {
  const used = useDatabase();
  const end = { reason: 'a test', actor: 'olga', now };

  before(async () => {
    await publishQuorum(used.db, null);
    await addSite(used.db);
  });

  it('M33 H-20 a hundred claims of ten machines give each machine to one, and name to the others the run that has it', async function () {
    this.timeout(60_000);
    const ids = Array.from({ length: 10 }, (_, index) => `claimed-${index}`);
    for (const id of ids) await availableMachine(used.db, id);
    const claims = Array.from({ length: 100 }, (_, index) => planRun(used.db, runOf(ids[index % 10] as string, 'provision')));
    const settled = await Promise.allSettled(claims);
    const won = settled.flatMap((one) => (one.status === 'fulfilled' ? [one.value.machineId] : []));
    assert.deepEqual(won.sort(), ids);
    const lost = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    assert.equal(lost.length, 90);
    for (const error of lost)
      assert.ok(isControlError(error) && error.code === 'CONFLICT' && error.details['reason'] === 'machine-busy', String(error));
    const rows = await used.db.query<{ id: string; runs: number }>({
      text: `select machine_id as id, count(*) as runs from metal_runs where state = 'open' and machine_id like 'claimed-%' group by 1`,
    });
    assert.ok(rows.length === 10 && rows.every(({ runs }) => runs === 1));
  });

  it('M33 the database itself refuses a second open run of a machine', async () => {
    await availableMachine(used.db, 'indexed');
    const { runId } = await planRun(used.db, runOf('indexed', 'provision'));
    const copy = `insert into metal_runs select '00000000000a', machine_id, kind, workflow_id, 'another', state, remains, end_reason, machine_state, actor,
                    reason, profile, plan, batch_id, started_at, ended_at, ended_by from metal_runs where id = $1`;
    await assert.rejects(used.db.query({ text: copy }, [runId]), refused('CONFLICT', /exists already/, 'duplicate'));
  });

  it('the same workflow run is the same run; another machine under its name is refused', async () => {
    await availableMachine(used.db, 'again');
    await availableMachine(used.db, 'other');
    const input = runOf('again', 'provision');
    const first = await planRun(used.db, input);
    const second = await planRun(used.db, input);
    assert.deepEqual({ ...second, existing: false }, first);
    assert.match(first.runId, /^[0-9a-f]{12}$/);
    await assert.rejects(
      planRun(used.db, { ...input, machineId: 'other' }),
      refused('CONFLICT', /began provision of again/, 'run-differs'),
    );
  });

  it('a run begins only from the states of the table, with a profile, and with a controller whose key is known', async () => {
    await availableMachine(used.db, 'fresh');
    await assert.rejects(planRun(used.db, runOf('nobody', 'inspect')), refused('NOT_FOUND', /no machine is called nobody/));
    await assert.rejects(
      planRun(used.db, runOf('fresh', 'provision', { profile: null })),
      refused('INVALID_INPUT', /needs a profile/, 'profile-needed'),
    );
    await assert.rejects(
      planRun(used.db, runOf('fresh', 'provision', { reason: ' ' })),
      refused('INVALID_INPUT', /needs a reason/, 'empty-reason'),
    );
    const short = goodProfile();
    const profile = { ...short, boot: { ...short.boot, discoveryWindowMs: 60_000 } };
    await assert.rejects(
      planRun(used.db, runOf('fresh', 'provision', { profile })),
      refused('INVALID_INPUT', /boot\.discoveryWindow: 1 min are not more/, 'bad-profile'),
    );
    await used.db.query({ text: `update machine_bmcs set pin_sha256 = null where machine_id = 'fresh'` });
    await assert.rejects(planRun(used.db, runOf('fresh', 'provision')), refused('INVALID_STATE', /inspect it first/, 'not-inspected'));
    await used.db.query({ text: `update machines set state = 'retired' where id = 'fresh'` });
    await assert.rejects(
      planRun(used.db, runOf('fresh', 'provision')),
      refused('INVALID_STATE', /machine fresh is retired: a provision run cannot begin/, 'machine-state'),
    );
    assert.equal((await stateOf(used.db, 'fresh'))?.state, 'retired');
  });

  it('M49 ends untouched when nothing was handed out, and the machine is what it was', async () => {
    await availableMachine(used.db, 'untouched');
    const { runId } = await planRun(used.db, runOf('untouched', 'provision'));
    assert.equal((await stateOf(used.db, 'untouched'))?.state, 'provisioning');
    const finished = await finishRun(used.db, { runId, end: 'cancelled', ...end });
    assert.deepEqual(finished, { runId, end: 'cancelled', remains: 'untouched', machineState: 'available', existing: false });
    assert.deepEqual(await finishRun(used.db, { runId, end: 'done', ...end }), { ...finished, existing: true }, 'the first end stands');
  });

  it('M49 a wipe that nobody proved is dirty: the machine is quarantined, its ramdisk speaks for nobody, and a word of the caller changes nothing', async () => {
    await availableMachine(used.db, 'dirty');
    const plan = await planRun(used.db, runOf('dirty', 'provision'));
    await bootRamdisk(used.db, plan);
    await sendWipe(used.db, plan);
    assert.equal((await standingOfRun(used.db, plan.runId)).remains, 'dirty');
    const finished = await finishRun(used.db, { runId: plan.runId, end: 'cancelled', remains: 'untouched', ...end });
    assert.equal(finished.remains, 'dirty');
    assert.deepEqual(await stateOf(used.db, 'dirty'), {
      state: 'quarantined',
      node: 'quarantined',
      role: 'node',
      generation: 4,
      reason: 'a test',
    });
    assert.ok((await certificatesOf(used.db, 'dirty')).every(({ revoked }) => revoked));
    await assert.rejects(planRun(used.db, runOf('dirty', 'provision')), refused('INVALID_STATE', /is quarantined \(a test\)/));
  });

  it('M49 a wipe with evidence is clean; a command that was taken back while somebody was there to take it is not untouched', async () => {
    await availableMachine(used.db, 'wiped');
    const plan = await planRun(used.db, runOf('wiped', 'provision'));
    const ramdisk = await bootRamdisk(used.db, plan);
    const commandId = await sendWipe(used.db, plan, { acked: false });
    await used.db.query({ text: `update node_commands set state = 5, finished_at = now() where id = $1` }, [commandId]);
    assert.equal((await standingOfRun(used.db, plan.runId)).remains, 'untouched', 'nobody was there');
    const node = { id: 'wiped', key: ramdisk.key, certificate: ramdisk.certificate, issuer: await issuer() };
    await connect(used.db, node, { role: 'ramdisk', now: null });
    assert.equal((await standingOfRun(used.db, plan.runId)).remains, 'dirty', 'somebody was there');
    const signed = await signBody(ramdisk, eraseBody(ramdisk, commandId));
    await recordEvidence(used.db, { runId: plan.runId, commandId, kind: 'erase', signed }, await evidenceContext());
    const finished = await finishRun(used.db, { runId: plan.runId, end: 'failed', ...end });
    assert.deepEqual([finished.remains, finished.machineState], ['clean', 'available']);
  });

  it('M49 a call of a plugin that may have written is dirty until a wipe is proven behind it; one that is harmless is nothing', async () => {
    await availableMachine(used.db, 'called');
    const plan = await planRun(used.db, runOf('called', 'provision'));
    await bootRamdisk(used.db, plan);
    const remains = async () => (await standingOfRun(used.db, plan.runId)).remains;
    await sendCall(used.db, plan, 'ask-ramdisk.1');
    assert.equal(await remains(), 'untouched');
    await sendCall(used.db, plan, 'invoke-ramdisk.1');
    assert.equal(await remains(), 'dirty');
  });

  it('H-20 a quarantine in the middle of a run stands, however the run ends', async () => {
    for (const how of ['done', 'failed'] as const) {
      const id = `cheated-${how}`;
      await availableMachine(used.db, id);
      const plan = await planRun(used.db, runOf(id, 'provision'));
      await bootRamdisk(used.db, plan);
      const reason = 'second-join: another key came with the token of this boot';
      const { changed } = await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: id, reason, now }));
      assert.equal(changed, true);
      assert.equal((await readRunFacts(used.db, plan.runId, now)).bootEntry?.closed, true, 'nobody joins with its entry any more');
      const finished = await finishRun(used.db, { runId: plan.runId, end: how, ...end });
      assert.equal(finished.machineState, 'quarantined');
      assert.equal((await stateOf(used.db, id))?.reason, reason);
    }
  });

  it('H-20 a quarantine never overwrites retired, and finds nothing at a node that is no machine', async () => {
    await availableMachine(used.db, 'gone');
    await used.db.query({ text: `update machines set state = 'retired' where id = 'gone'` });
    const late = await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: 'gone', reason: 'late', now }));
    assert.deepEqual(late, { changed: false, state: 'retired' });
    assert.deepEqual(await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: 'agent-a', reason: 'late', now })), {
      changed: false,
      state: null,
    });
  });

  it('H-20 a move that was decided on what is no longer there changes nothing', async () => {
    await availableMachine(used.db, 'stale');
    const read = await used.db.transaction((tx) => lockMachine(tx, 'stale'));
    const move = { move: 'quarantine', actor: 'olga', reason: 'a look', now } as const;
    await used.db.transaction((tx) => applyMove(tx, read, move));
    await used.db.transaction(async (tx) => applyMove(tx, await lockMachine(tx, 'stale'), { ...move, move: 'override' }));
    // The same state again, and another generation: what happened in between is not overwritten.
    assert.equal((await stateOf(used.db, 'stale'))?.state, read.state);
    const late = used.db.transaction((tx) => applyMove(tx, read, move));
    await assert.rejects(late, refused('CONFLICT', /machine stale changed meanwhile/, 'machine-changed'));
    assert.equal((await stateOf(used.db, 'stale'))?.state, 'available');
  });

  it('M28 REV-005 a retirement ends the identity before it boots anything, and at its end the node never comes back', async () => {
    await availableMachine(used.db, 'old');
    const provision = await planRun(used.db, runOf('old', 'provision'));
    await finishRun(used.db, { runId: provision.runId, end: 'done', ...end });
    assert.equal((await stateOf(used.db, 'old'))?.state, 'provisioned');
    await certify(used.db, { id: 'old', key: newKey(), now });
    const plan = await planRun(used.db, runOf('old', 'retire'));
    assert.equal(plan.profile?.name, 'debian-13', 'it boots what it was provisioned with');
    const ended = await endRunIdentity(used.db, { runId: plan.runId, reason: 'retire', now });
    assert.equal(ended.serials.length, 1);
    assert.deepEqual(await endRunIdentity(used.db, { runId: plan.runId, reason: 'retire', now }), {
      generation: ended.generation,
      serials: [],
    });
    assert.ok((await certificatesOf(used.db, 'old')).every(({ revoked }) => revoked));
    await certify(used.db, { id: 'old', key: newKey(), now });
    const finished = await finishRun(used.db, { runId: plan.runId, end: 'done', ...end });
    assert.equal(finished.machineState, 'retired');
    assert.equal((await stateOf(used.db, 'old'))?.node, 'retired');
    assert.ok((await certificatesOf(used.db, 'old')).every(({ revoked }) => revoked));
  });

  it('M58 a person lets a quarantined machine go, by name and reason, and not while a run has it', async () => {
    await availableMachine(used.db, 'held');
    const { runId } = await planRun(used.db, runOf('held', 'provision'));
    await used.db.transaction((tx) => quarantineMachine(tx, { nodeId: 'held', reason: 'a look', now }));
    const change = { machineId: 'held', actor: 'olga', reason: 'I have checked: nothing was written', now };
    await assert.rejects(overrideMachine(used.db, change), refused('INVALID_STATE', /is in provision run/, 'machine-busy'));
    await finishRun(used.db, { runId, end: 'cancelled', ...end });
    await assert.rejects(overrideMachine(used.db, { ...change, reason: '' }), refused('INVALID_INPUT', /an override needs a reason/));
    await assert.rejects(overrideMachine(used.db, { ...change, actor: '' }), refused('INVALID_INPUT', /an override needs an actor/));
    await overrideMachine(used.db, change);
    const { state, node } = (await stateOf(used.db, 'held')) ?? {};
    assert.deepEqual([state, node], ['available', 'active']);
    await assert.rejects(overrideMachine(used.db, change), refused('INVALID_STATE', /held is available: only a quarantined one/));
    const trail = await used.db.query<{ actor: string; details: { reason: string } }>({
      text: `select actor, details from audit_events where subject = 'held' and action = 'machine.override'`,
    });
    assert.deepEqual(
      trail.map(({ actor, details }) => [actor, details.reason]),
      [['olga', change.reason]],
    );
    await verifyAuditChain(used.db);
  });

  it('a boot entry is for one boot: the next one closes it, a used one is not opened again, and its token is nowhere', async () => {
    await availableMachine(used.db, 'booting');
    const { runId } = await planRun(used.db, runOf('booting', 'provision'));
    const [token, again] = [randomBytes(32), randomBytes(32)];
    const entry = { runId, attempt: 1, expiresAt: now + hour, now };
    const first = await createBootEntry(used.db, { ...entry, token });
    assert.equal(first.tokenRef, `secret://run/${runId}/boot/${first.entryId}`);
    const repeated = await createBootEntry(used.db, { ...entry, token: again });
    assert.deepEqual(repeated, first, 'the same boot, the same nonce');
    const second = await createBootEntry(used.db, { ...entry, attempt: 2, token });
    assert.notEqual(second.bootNonce, first.bootNonce);
    await assert.rejects(
      createBootEntry(used.db, { ...entry, token }),
      refused('INVALID_STATE', /boot 1 of run .* was used or closed/, 'boot-entry-used'),
    );
    const rows = await used.db.query<{ text: string }>({ text: `select boot_entries::text as text from boot_entries where run_id = $1` }, [
      runId,
    ]);
    assert.ok(rows.every(({ text }) => !text.includes(token.toString('hex'))));
    assert.deepEqual(await closeBoots(used.db, runId, now), { closed: 1 });
    const observed = await observeMachine(used.db, 'booting', now);
    assert.deepEqual([observed.state, observed.bootEntry?.closed, observed.identity.connectedRole], ['provisioning', true, null]);
  });

  it('a late word of an ended run closes nothing of the next one', async () => {
    await availableMachine(used.db, 'late');
    const first = await planRun(used.db, runOf('late', 'provision'));
    await finishRun(used.db, { runId: first.runId, end: 'cancelled', ...end });
    const next = await planRun(used.db, runOf('late', 'provision'));
    const ramdisk = await bootRamdisk(used.db, next);
    await closeBoots(used.db, first.runId, now);
    const facts = await readRunFacts(used.db, next.runId, now);
    assert.deepEqual([facts.bootEntry?.closed, facts.node.role, facts.node.certificateRole], [false, 'ramdisk', 'ramdisk']);
    assert.equal(ramdisk.certificate.role, 'ramdisk');
  });

  it('steps stand in the record with who brought them about; a beginning that comes late ends nothing', async () => {
    await availableMachine(used.db, 'stepping');
    const { runId } = await planRun(used.db, runOf('stepping', 'provision'));
    const step = { runId, step: 'wipe', attempt: 1, detail: '', by: 'workflow' };
    const told = [
      { ...step, state: 'started', at: now },
      { ...step, state: 'done', detail: '2 disks erased', at: now + 1 },
      { ...step, step: 'deploy', state: 'started', at: now + 1 },
      { ...step, state: 'started', at: now + 2 },
    ] as const;
    const kept = () =>
      used.db.query(
        {
          text: 'select step, state, detail, started_at as "startedAt", ended_at as "endedAt" from metal_run_steps where run_id = $1 order by step',
        },
        [runId],
      );
    const expected = [
      { step: 'deploy', state: 'started', detail: '', startedAt: now + 1, endedAt: null },
      { step: 'wipe', state: 'done', detail: '2 disks erased', startedAt: now, endedAt: now + 1 },
    ];
    await recordSteps(used.db, told);
    assert.deepEqual(await kept(), expected);
    for (const one of told) await recordSteps(used.db, [one]);
    assert.deepEqual(await kept(), expected, 'told again one by one, it is the same');
    await recordSteps(used.db, []);
    await assert.rejects(
      recordSteps(used.db, [{ ...step, runId: 'nothing', state: 'done', at: now }]),
      refused('NOT_FOUND', /there is no run nothing/),
    );
  });
});

async function issuer(): Promise<string> {
  const { issuerOf } = await import('../../../services/node-certs.ts');
  return issuerOf((await testBundle()).nodeCa.spki);
}
