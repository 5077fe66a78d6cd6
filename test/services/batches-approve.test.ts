import assert from 'node:assert/strict';
import { hour, minute, second } from '../../domain/time.ts';
import { readApprovals } from '../../drizzle/queries/batches.ts';
import { noQuorum } from '../../pki/trust/index.ts';
import { BatchApprovalSchema, decodeMessage } from '../../proto/index.ts';
import {
  cancelBatch,
  closeBatch,
  expireBatches,
  listBatches,
  openBatches,
  readBatch,
  recordApproval,
} from '../../services/batches/index.ts';
import { findCommand } from '../../services/command-queue.ts';
import { createTenant, deleteTenant, listTenants } from '../../services/tenants.ts';
import { malleated } from '../harness/approvers.ts';
import { useDatabase } from '../harness/postgres.ts';
import {
  addNodes,
  approvalOf,
  approve,
  createApprover,
  createBatchOf,
  enqueueAll,
  forceQuorum,
  quorumOfApprovers,
  rebootIn,
  rebootLeaf,
  releaseAll,
  start,
  three,
} from './batch-support.ts';
import { refused, trustDomain } from './support.ts';

describe('approving and ending a batch', () => {
  const used = useDatabase({ max: 10 });
  before(() => addNodes(used.db, ['n0', 'n1', 'n2']));
  beforeEach(() => forceQuorum(used.db, quorumOfApprovers({ approvers: three })));
  const [ann, ben, cem] = three as [(typeof three)[0], (typeof three)[0], (typeof three)[0]];
  const scope = ['n0', 'n1'].map((id) => rebootLeaf(id));
  const record = (batchId: string, signature: { kid: string; sig: Uint8Array }, now = start) =>
    recordApproval(used.db, { batchId, signature }, { now, trustDomain });
  const stateOf = async (batchId: string, now = start) => (await readBatch(used.db, batchId, { now })).state;
  const storedState = async (batchId: string) =>
    (
      await used.db.query<{ state: string; closed: number | null }>(
        { text: 'select state, closed_at as closed from command_batches where id = $1' },
        [batchId],
      )
    )[0];

  it('BAT-062 QUO-003 one approval fewer than required changes nothing, the last one approves', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    assert.deepEqual(await record(batchId, await approvalOf(used.db, batchId, ann)), {
      kind: 'recorded',
      kid: ann.kid,
      have: 1,
      required: 2,
      released: false,
    });
    assert.equal(await stateOf(batchId), 'pending');
    assert.deepEqual(await record(batchId, await approvalOf(used.db, batchId, ben)), {
      kind: 'recorded',
      kid: ben.kid,
      have: 2,
      required: 2,
      released: true,
    });
    assert.equal(await stateOf(batchId), 'approved');
    const [row] = await used.db.query<{ approval: Buffer }>({ text: 'select approval from command_batches where id = $1' }, [batchId]);
    const { signatures, scopeSize } = decodeMessage(BatchApprovalSchema, row!.approval, 'batchApproval');
    assert.deepEqual([scopeSize, signatures.map(({ kid }) => kid)], [2n, [ann.kid, ben.kid].sort()]);
    const trail = await used.db.query<{ action: string }>({ text: 'select action from audit_events where subject = $1 order by seq' }, [
      batchId,
    ]);
    assert.deepEqual(
      trail.map(({ action }) => action),
      ['command.batch.created', 'command.batch.approval', 'command.batch.approval', 'command.batch.approved'],
    );
  });

  it('H-09 one approver counts once, however often and in whatever form the key signs', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    const first = await approvalOf(used.db, batchId, ann);
    await record(batchId, first);
    for (const sig of [first.sig, (await approvalOf(used.db, batchId, ann)).sig, malleated({ ...first, chain: [] } as never).sig])
      assert.deepEqual(await record(batchId, { kid: ann.kid, sig }), {
        kind: 'already',
        kid: ann.kid,
        have: 1,
        required: 2,
        released: false,
      });
    assert.equal((await readApprovals(used.db, batchId)).length, 1);
    await assert.rejects(
      record(batchId, { kid: ann.kid.toUpperCase(), sig: first.sig }),
      refused('INVALID_INPUT', /kid of 64/, 'bad-approval'),
    );
    await assert.rejects(record(batchId, { kid: ben.kid, sig: first.sig }), refused('BAD_SIGNATURE', /is not over batch/, 'bad-signature'));
  });

  it('BAT-064 QUO-046 QUO-044 a signature for another trust domain, another batch or by a stranger is refused and not counted', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    const other = await createBatchOf(used.db, scope);
    const stranger = createApprover();
    const wrong: readonly [{ kid: string; sig: Uint8Array }, Parameters<typeof refused>][] = [
      [
        await approvalOf(used.db, batchId, { ...ann, domain: 'staging.example' }),
        ['BAD_SIGNATURE', /for trust domain fleet.example/, 'bad-signature'],
      ],
      [await approvalOf(used.db, other.batchId, ann), ['BAD_SIGNATURE', /is not over batch/, 'bad-signature']],
      [await approvalOf(used.db, batchId, stranger), ['PERMISSION_DENIED', /is no approver of the published set/, 'unknown-key']],
      [{ kid: ann.kid, sig: new Uint8Array(63) }, ['INVALID_INPUT', /64 bytes/, 'bad-approval']],
      [{ kid: ann.kid, sig: new Uint8Array(64) }, ['BAD_SIGNATURE', /is not over batch/, 'bad-signature']],
    ];
    for (const [signature, expected] of wrong) await assert.rejects(record(batchId, signature), refused(...expected));
    assert.deepEqual([await stateOf(batchId), (await readApprovals(used.db, batchId)).length], ['pending', 0]);
    // The row's own word for the trust domain is nobody's: a database writer changes it in vain.
    await used.db.query({ text: `update command_batches set trust_domain = 'staging.example' where id = $1` }, [batchId]);
    await assert.rejects(record(batchId, wrong[0]![0]), refused('BAD_SIGNATURE', /fleet.example/));
  });

  it('an approval counts by the published set: of one that has left it nothing remains', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    await record(batchId, await approvalOf(used.db, batchId, ann));
    await forceQuorum(used.db, quorumOfApprovers({ approvers: [ben, cem], approverSetEpoch: 2 }));
    const second = await record(batchId, await approvalOf(used.db, batchId, ben));
    assert.deepEqual([second.have, second.released], [1, false]);
    assert.equal((await record(batchId, await approvalOf(used.db, batchId, cem))).released, true);
    await forceQuorum(used.db, noQuorum);
    await assert.rejects(
      record(batchId, await approvalOf(used.db, batchId, cem)),
      refused('INVALID_STATE', /no approver set is published/, 'no-approvers'),
    );
  });

  it('approvals that come at once approve once', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    const signatures = await Promise.all(three.map((approver) => approvalOf(used.db, batchId, approver)));
    const answers = await Promise.all([...signatures, ...signatures].map((signature) => record(batchId, signature)));
    assert.equal(answers.filter(({ kind }) => kind === 'recorded').length, 3);
    const approved = await used.db.query({ text: `select 1 from audit_events where subject = $1 and action = 'command.batch.approved'` }, [
      batchId,
    ]);
    assert.equal(approved.length, 1);
  });

  it('BAT-058 BAT-059 BAT-060 a pending batch past its end reads as expired, takes no approval, and is recorded with its held commands cancelled', async () => {
    const { batchId } = await createBatchOf(used.db, scope, { windowMs: hour });
    const request = rebootIn('n0', { batchId });
    await enqueueAll(used.db, [request]);
    const late = start + hour + second;
    assert.deepEqual([await stateOf(batchId, start + hour), await stateOf(batchId, late)], ['pending', 'expired']);
    await assert.rejects(
      record(batchId, await approvalOf(used.db, batchId, ann), late),
      refused('INVALID_STATE', /is expired: it takes no approval/, 'not-pending'),
    );
    assert.ok(!(await expireBatches(used.db, { now: start + hour })).expired.includes(batchId));
    const { expired } = await expireBatches(used.db, { now: late });
    assert.ok(expired.includes(batchId));
    assert.equal((await findCommand(used.db, request.id))?.state, 'cancelled');
    assert.deepEqual(await storedState(batchId), { state: 'expired', closed: late });
    assert.deepEqual((await expireBatches(used.db, { now: late })).expired, []);
  });

  it('A-PKI-47 what was released and not taken by the end of its batch is cancelled too', async () => {
    const { batchId } = await createBatchOf(used.db, scope, { windowMs: hour });
    const requests = [rebootIn('n0', { batchId }), rebootIn('n1', { batchId })];
    await enqueueAll(used.db, requests);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId, { to: 1 });
    await expireBatches(used.db, { now: start + hour + second });
    for (const { id } of requests) assert.equal((await findCommand(used.db, id))?.state, 'cancelled');
    await assert.rejects(releaseAll(used.db, batchId), refused('INVALID_STATE', /is expired: nothing of it is released/));
  });

  it('a reconciler that was cut between state and commands is finished by the next', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    const request = rebootIn('n0', { batchId });
    await enqueueAll(used.db, [request]);
    await used.db.query({ text: `update command_batches set state = 'cancelled', closed_by = 'olga' where id = $1` }, [batchId]);
    assert.equal((await expireBatches(used.db, { now: start })).cancelledCommands, 1);
    assert.equal((await findCommand(used.db, request.id))?.state, 'cancelled');
  });

  it('BAT-063 cancels once, and a rejection says who and why; an end is never left again', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    const request = rebootIn('n0', { batchId });
    await enqueueAll(used.db, [request]);
    const reject = { batchId, actor: 'ben', reason: 'wrong kernel', isRejection: true };
    assert.deepEqual(await cancelBatch(used.db, reject, { now: start }), { changed: true, cancelled: 1 });
    assert.deepEqual(await cancelBatch(used.db, reject, { now: start }), { changed: false, cancelled: 0 });
    const view = await readBatch(used.db, batchId, { now: start });
    assert.deepEqual([view.state, view.closedBy, view.closeReason], ['cancelled', 'ben', 'rejected: wrong kernel']);
    assert.equal((await findCommand(used.db, request.id))?.reason, 'batch rejected by ben');
    await assert.rejects(record(batchId, await approvalOf(used.db, batchId, ann)), refused('INVALID_STATE', /is cancelled/, 'not-pending'));
    await assert.rejects(
      cancelBatch(used.db, { ...reject, batchId: 'b-none' }, { now: start }),
      refused('NOT_FOUND', /b-none/, 'unknown-batch'),
    );
    assert.equal(await stateOf(batchId, start + 99 * hour), 'cancelled');
  });

  it('is open until its commands have ended, and then closed', async () => {
    const { batchId } = await createBatchOf(used.db, scope);
    const request = rebootIn('n0', { batchId });
    await enqueueAll(used.db, [request]);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId);
    const isOpen = async () => (await openBatches(used.db, { after: '', limit: 1_000 })).includes(batchId);
    assert.deepEqual([await isOpen(), await closeBatch(used.db, batchId, { now: start })], [true, false]);
    await used.db.query({ text: 'update node_commands set state = 2 where id = $1' }, [request.id]);
    assert.deepEqual([await closeBatch(used.db, batchId, { now: start }), await isOpen()], [true, false]);
  });

  it('BAT-061 the batches of a tenant that is deleted are cancelled, and nothing new is made for it', async () => {
    await createTenant(used.db, { id: 'gone', actor: 'olga', now: start });
    await addNodes(used.db, ['g0'], 'gone');
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('g0')], { tenantId: 'gone' });
    const request = rebootIn('g0', { batchId });
    await enqueueAll(used.db, [request]);
    assert.deepEqual(await deleteTenant(used.db, { id: 'gone', actor: 'olga', now: start }), [batchId]);
    assert.deepEqual(await deleteTenant(used.db, { id: 'gone', actor: 'olga', now: start }), []);
    const view = await readBatch(used.db, batchId, { now: start });
    assert.deepEqual([view.state, view.closeReason], ['cancelled', 'tenant-deleted']);
    assert.equal((await findCommand(used.db, request.id))?.state, 'cancelled');
    const again = createBatchOf(used.db, [rebootLeaf('g0')], { tenantId: 'gone' });
    await assert.rejects(again, refused('INVALID_STATE', /tenant gone was deleted/, 'tenant-deleted'));
  });

  it('tenants have ids that stand anywhere, once; the default one stays', async () => {
    const make = (id: string) => createTenant(used.db, { id, actor: 'olga', now: start });
    for (const id of ['', 'A', 'a b', '-a', 'deployment', 'a'.repeat(64)])
      await assert.rejects(make(id), refused('INVALID_INPUT', /a tenant id is/, 'tenant-id'));
    await make('acme');
    await assert.rejects(make('acme'), refused('CONFLICT', /a tenant acme exists/, 'tenant-exists'));
    const drop = (id: string) => deleteTenant(used.db, { id, actor: 'olga', now: start });
    await assert.rejects(drop('default'), refused('INVALID_STATE', /cannot be deleted/, 'default-tenant'));
    await assert.rejects(drop('nobodys'), refused('NOT_FOUND', /no tenant is called nobodys/, 'unknown-tenant'));
    const rows = await listTenants(used.db, 100);
    assert.deepEqual(
      rows.filter(({ id }) => id === 'acme' || id === 'default').map(({ id, deletedAt, nodes }) => [id, deletedAt, nodes > 0]),
      [
        ['acme', null, false],
        ['default', null, true],
      ],
    );
  });

  it('lists the newest first, by tenant and by the state that is read', async () => {
    await used.db.query({ text: 'truncate command_batches cascade' });
    await addNodes(used.db, ['t0'], 'team');
    const ids: string[] = [];
    for (let at = 0; at < 4; at += 1) {
      const of = at === 2 ? [rebootLeaf('t0')] : scope;
      ids.push(
        (await createBatchOf(used.db, of, { windowMs: hour, tenantId: at === 2 ? 'team' : 'default', context: { now: start + at } }))
          .batchId,
      );
    }
    const page = async (over: object) =>
      (await listBatches(used.db, { tenants: 'all', after: '', limit: 10, now: start, ...over })).map(({ id }) => ids.indexOf(id));
    assert.deepEqual(await page({}), [3, 2, 1, 0]);
    assert.deepEqual(await page({ limit: 2 }), [3, 2]);
    assert.deepEqual(await page({ after: ids[2] }), [1, 0]);
    assert.deepEqual(await page({ tenants: ['team'] }), [2]);
    assert.deepEqual(await page({ tenants: [] }), []);
    assert.deepEqual([await page({ state: 'expired' }), await page({ state: 'expired', now: start + hour + minute })], [[], [3, 2, 1, 0]]);
  });
});
