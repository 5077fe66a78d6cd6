import assert from 'node:assert/strict';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { hour, minute } from '../../domain/time.ts';
import { readCommands } from '../../drizzle/queries/commands.ts';
import { readOpenCommands } from '../../drizzle/queries/dispatch.ts';
import { verifyIntent } from '../../pki/envelope/index.ts';
import { noQuorum } from '../../pki/trust/index.ts';
import { CommandBodySchema, driver, SignatureSchema } from '../../proto/index.ts';
import { assertMayRun, batchProgress, cancelBatch, labelsAhead, progressByLabel } from '../../services/batches/index.ts';
import { cancelCommandsOf, expireCommands, reconcileCommands } from '../../services/command-ends.ts';
import { findCommand } from '../../services/command-queue.ts';
import { resignCommands } from '../../services/resign.ts';
import { useDatabase } from '../harness/postgres.ts';
import {
  addNodes,
  approve,
  batchWorker,
  createBatchOf,
  enqueueAll,
  forceQuorum,
  quorumOfApprovers,
  rebootIn,
  rebootLeaf,
  rebootType,
  rebootValue,
  releaseAll,
  start,
  three,
} from './batch-support.ts';
import { inventoryPayload, rebootPayload, refused, sha256, testBundle } from './support.ts';

const pluginPayload = (init: MessageInitShape<typeof driver.DriverInvokeSchema>): Uint8Array =>
  toBinary(AnySchema, anyPack(driver.DriverInvokeSchema, create(driver.DriverInvokeSchema, init)));

describe('commands of a batch', () => {
  const used = useDatabase({ max: 10 });
  before(async () => {
    await addNodes(
      used.db,
      Array.from({ length: 12 }, (_, at) => `n${at}`),
    );
    await addNodes(used.db, ['b0'], 'other');
  });
  beforeEach(() => forceQuorum(used.db, quorumOfApprovers({ approvers: three })));

  const stored = async (id: string) => (await readCommands(used.db, [id])).get(id)!;
  const members = (batchId: string) =>
    used.db.query<{ index: number; id: string; leaf: number; digest: Buffer }>(
      {
        text: `select member_index as index, command_id as id, leaf_index as leaf, payload_sha256 as digest from command_batch_members
               where batch_id = $1 order by 1`,
      },
      [batchId],
    );
  const leafAt = async (batchId: string, index: number) =>
    (
      await used.db.query<{ subject: string; digest: Buffer }>(
        { text: 'select subject, payload_sha256 as digest from command_batch_scope where batch_id = $1 and leaf_index = $2' },
        [batchId, index],
      )
    )[0];
  const logOf = async (nodeId: string) => (await readOpenCommands(used.db, [{ nodeId, afterSeq: 0 }], 100)).map(({ id }) => id);

  it('BAT-010 BAT-014 BAT-015 BAT-016 holds a command of a pending batch: unsigned, without a place, nobody poked', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n0')]);
    const request = rebootIn('n0', { batchId });
    const poked: string[] = [];
    const done = await enqueueAll(used.db, [request], (ids) => void poked.push(...ids));
    assert.deepEqual(done, { enqueued: [request.id], existing: [], held: [request.id] });
    assert.deepEqual(poked, []);
    const row = await stored(request.id);
    assert.deepEqual([row.notBefore, row.signature.length, row.signerRoot, row.signerNotAfter], [Infinity, 0, '', -Infinity]);
    assert.ok(row.seq < 0);
    assert.equal(fromBinary(CommandBodySchema, row.body).batchId, batchId);
    assert.deepEqual(
      (await members(batchId)).map(({ index, id }) => [index, id]),
      [[0, request.id]],
    );
    assert.deepEqual(await logOf('n0'), []);
    assert.deepEqual((await enqueueAll(used.db, [request])).existing, [request.id], 'a retry adds no second member');
    assert.equal((await members(batchId)).length, 1);
    await cancelBatch(used.db, { batchId, actor: 'olga', reason: 'no' }, { now: start });
    assert.deepEqual((await enqueueAll(used.db, [request])).existing, [request.id], 'a retry after the end of its batch is still one');
  });

  it('BAT-011 BAT-012 BAT-013 refuses a batch of another tenant, one that has ended, and a command that is not in the scope', async () => {
    const { batchId } = await createBatchOf(used.db, [
      rebootLeaf('n0'),
      rebootLeaf('n1', { payload: { typeUrl: rebootType, value: rebootValue('a') } }),
    ]);
    const foreign = await createBatchOf(used.db, [rebootLeaf('b0')], { tenantId: 'other' });
    const put = (nodeId: string, changes: object) => enqueueAll(used.db, [rebootIn(nodeId, { batchId, ...changes })]);
    await assert.rejects(
      put('n0', { batchId: foreign.batchId }),
      refused('NOT_FOUND', /the tenant of node n0 has no batch/, 'other-tenant'),
    );
    await assert.rejects(put('n0', { batchId: 'b-none' }), refused('NOT_FOUND', /no batch is called b-none/, 'unknown-batch'));
    await assert.rejects(
      put('n2', {}),
      refused('INVALID_INPUT', /node.reboot on n2 with this payload is not in the scope/, 'not-in-scope'),
    );
    await assert.rejects(put('n1', { payload: rebootPayload('b') }), refused('INVALID_INPUT', /not in the scope/, 'not-in-scope'));
    await assert.rejects(
      put('n0', { kind: 'inventory.refresh', payload: inventoryPayload() }),
      refused('INVALID_INPUT', /inventory.refresh on n0/),
    );
    assert.equal((await put('n1', { payload: rebootPayload('a') })).held.length, 1);
    await cancelBatch(used.db, { batchId, actor: 'olga', reason: 'no' }, { now: start });
    await assert.rejects(put('n0', {}), refused('INVALID_STATE', /is cancelled: it takes no command/, 'not-pending'));
    const short = await createBatchOf(used.db, [rebootLeaf('n0')], { windowMs: 2 * minute, context: { now: start - hour } });
    await assert.rejects(put('n0', { batchId: short.batchId }), refused('INVALID_STATE', /is expired: it takes no command/, 'not-pending'));
  });

  it('BAT-019 records the leaf that is bound to the payload where there is one, else the one that admits any', async () => {
    const value = rebootValue('bound');
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n2'), rebootLeaf('n2', { payload: { typeUrl: rebootType, value } })]);
    await enqueueAll(used.db, [
      rebootIn('n2', { batchId, payload: rebootPayload('bound') }),
      rebootIn('n2', { batchId, payload: rebootPayload('x') }),
    ]);
    const [bound, free] = await members(batchId);
    assert.ok(sha256(value).equals((await leafAt(batchId, bound!.leaf))!.digest));
    assert.equal((await leafAt(batchId, free!.leaf))!.digest.length, 0);
    assert.ok(sha256(rebootValue('x')).equals(free!.digest));
  });

  it('BAT-020 without approvers a batch is a record: its commands go out at once', async () => {
    await forceQuorum(used.db, noQuorum);
    const { batchId, held } = await createBatchOf(used.db, [rebootLeaf('n3')], { context: { quorum: noQuorum } });
    const request = rebootIn('n3', { batchId });
    assert.deepEqual((await enqueueAll(used.db, [request])).held, []);
    assert.deepEqual([held, await logOf('n3')], [false, [request.id]]);
  });

  it('BAT-021 BAT-022 BAT-023 refuses a destructive command without a batch, and says what to do', async () => {
    const bare = rebootIn('n4');
    await assert.rejects(enqueueAll(used.db, [bare]), (error: unknown) => {
      assert.ok(
        refused('INVALID_STATE', /create a batch first \(POST \/v1\/batches.*BETTER_COMPUTE_UNBATCHED_PER_HOUR/, 'batch-required')(error),
      );
      assert.equal((error as { details: { kind: string } }).details.kind, 'node.reboot');
      return true;
    });
    const harmless = { ...bare, kind: 'inventory.refresh', payload: inventoryPayload() };
    assert.equal((await enqueueAll(used.db, [harmless])).enqueued.length, 1);
  });

  it('KIND-008 DMN-037 a call of a plugin that claims to be harmless, and a relayed GET, need no batch; without the claim they do', async () => {
    const bare = rebootIn('n4');
    const invoke = (harmless: boolean) => ({
      ...bare,
      id: `invoke-${harmless}`,
      kind: 'driver.invoke',
      payload: pluginPayload({ harmless }),
    });
    await assert.rejects(enqueueAll(used.db, [invoke(false)]), refused('INVALID_STATE', /driver\.invoke is destructive/, 'batch-required'));
    assert.equal((await enqueueAll(used.db, [invoke(true)])).enqueued.length, 1);
    const asked = { nodes: ['n4'], tenants: 'all', now: start } as const;
    for (const [kind, payload] of [
      ['driver.invoke', { harmless: true }],
      ['site.httpProxy', { method: 'GET' }],
    ] as const) {
      await assertMayRun(used.db, { ...asked, kind, payload });
      await assert.rejects(
        assertMayRun(used.db, { ...asked, kind, payload: {} }),
        refused('INVALID_STATE', /is destructive/, 'batch-required'),
      );
    }
  });

  it('BAT-025 with an allowance, or without approvers, it is enqueued', async () => {
    await forceQuorum(used.db, quorumOfApprovers({ approvers: three, unbatchedDestructivePerHour: 1 }));
    assert.equal((await enqueueAll(used.db, [rebootIn('n4')])).enqueued.length, 1);
    await forceQuorum(used.db, noQuorum);
    assert.equal((await enqueueAll(used.db, [rebootIn('n4')])).enqueued.length, 1);
  });

  it('BAT-062 H-05 a release signs what was held: key, sequence, issue time and deadline are those of the release', async () => {
    const nodes = ['n5', 'n6', 'n7'];
    const { batchId } = await createBatchOf(
      used.db,
      nodes.map((id) => rebootLeaf(id)),
    );
    const requests = nodes.map((id) => rebootIn(id, { batchId, earlier: { commandId: 'an-earlier-one', seen: null } }));
    await enqueueAll(used.db, requests);
    await assert.rejects(releaseAll(used.db, batchId), refused('INVALID_STATE', /is pending: nothing of it is released/, 'not-pending'));
    await approve(used.db, batchId);
    const now = start + 5 * minute;
    assert.deepEqual(await releaseAll(used.db, batchId, { from: 0, to: 2, now }), { released: 2, existing: 0 });
    assert.deepEqual([await logOf('n5'), await logOf('n6'), await logOf('n7')], [[requests[0]!.id], [requests[1]!.id], []]);
    const row = await stored(requests[0]!.id);
    const body = fromBinary(CommandBodySchema, row.body);
    assert.deepEqual(
      [Number(body.issuedAtMs), Number(body.expiresAtMs), row.deadline, row.notBefore],
      [now, start + hour, start + hour, -Infinity],
    );
    assert.equal(body.earlier?.commandId, 'an-earlier-one', 'MT2 what was asked for before it is signed again with it');
    assert.ok(row.seq > 0);
    const bundle = await testBundle();
    const roots = [...bundle.commandRootsById.values()].map((root) => root.certificate.der);
    const signature = fromBinary(SignatureSchema, row.signature);
    assert.ok(verifyIntent({ purpose: 'command', body: row.body, signature, roots, now, required: true }) !== null);
    assert.deepEqual(await releaseAll(used.db, batchId, { now }), { released: 1, existing: 2 }, 'again: each moves once');
    assert.deepEqual(await releaseAll(used.db, batchId, { now }), { released: 0, existing: 3 });
    assert.deepEqual(await logOf('n7'), [requests[2]!.id]);
  });

  it('no deadline lies behind the end of the batch', async () => {
    const { batchId, root } = await createBatchOf(used.db, [rebootLeaf('n5')], { windowMs: 10 * minute });
    assert.equal(root.length, 32);
    const request = rebootIn('n5', { batchId });
    await enqueueAll(used.db, [request]);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId, { deadlineMs: start + 5 * hour });
    assert.equal((await stored(request.id)).deadline, start + 10 * minute);
  });

  it('releases of one range at once move each command once', async () => {
    const nodes = Array.from({ length: 10 }, (_, at) => `n${at}`);
    const { batchId } = await createBatchOf(
      used.db,
      nodes.map((id) => rebootLeaf(id)),
    );
    await enqueueAll(
      used.db,
      nodes.map((id) => rebootIn(id, { batchId })),
    );
    await approve(used.db, batchId);
    const done = await Promise.all(Array.from({ length: 4 }, () => releaseAll(used.db, batchId)));
    assert.equal(
      done.reduce((sum, { released }) => sum + released, 0),
      10,
    );
    const seqs = await used.db.query<{ node: string; n: number }>(
      { text: 'select node_id as node, count(distinct seq) as n from node_commands where batch_id = $1 and seq > 0 group by 1' },
      [batchId],
    );
    assert.equal(seqs.length, 10);
  });

  it('signs nothing for whoever edits or moves a held row', async () => {
    const { batchId } = await createBatchOf(used.db, [
      rebootLeaf('n8'),
      rebootLeaf('n9', { payload: { typeUrl: rebootType, value: rebootValue('ok') } }),
    ]);
    const other = rebootIn('n8', { batchId });
    const bound = rebootIn('n9', { batchId, payload: rebootPayload('ok') });
    await enqueueAll(used.db, [other, bound]);
    await approve(used.db, batchId);
    const evil = rebootIn('n9', { id: bound.id, payload: rebootPayload('evil') });
    const { batchId: elsewhere } = await createBatchOf(used.db, [rebootLeaf('n9')]);
    await enqueueAll(used.db, [{ ...evil, id: 'evil/1', batchId: elsewhere }]);
    const edits: readonly [string, unknown[]][] = [
      ['update node_commands set body = (select body from node_commands where id = $2) where id = $1', [bound.id, 'evil/1']],
      ['update command_batch_members set leaf_index = 1 - leaf_index where command_id = $1', [other.id]],
    ];
    for (const [text, values] of edits) {
      await used.db.query({ text }, values);
      await assert.rejects(
        releaseAll(used.db, batchId),
        refused('BAD_SIGNATURE', /held command .* it was changed after/, 'held-command-differs'),
      );
    }
    assert.equal((await stored(bound.id)).signature.length, 0);
  });

  it('A-PKI-46 a set that asks for more since holds a release and an enqueue back, until more approve', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n0'), rebootLeaf('n1')]);
    await enqueueAll(used.db, [rebootIn('n0', { batchId })]);
    await approve(used.db, batchId);
    await forceQuorum(used.db, quorumOfApprovers({ approvers: three, approverThreshold: 3 }));
    const tooFew = refused('INVALID_STATE', /holds 2 of the 3 approvals/, 'too-few-approvals');
    await assert.rejects(releaseAll(used.db, batchId), tooFew);
    await assert.rejects(enqueueAll(used.db, [rebootIn('n1', { batchId })]), tooFew);
    const last = await approve(used.db, batchId, three.slice(2));
    assert.deepEqual([last?.kind, last?.have, last?.required, last?.released], ['recorded', 3, 3, true]);
    assert.equal((await releaseAll(used.db, batchId)).released, 1);
  });

  it('nothing that looks for work touches a held command: neither signing again nor what is due or overdue', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n10')]);
    const request = rebootIn('n10', { batchId, deadlineMs: start + minute });
    await enqueueAll(used.db, [request]);
    const worker = await batchWorker(used.db);
    await resignCommands({ db: used.db, worker, roots: [], now: start, expiringBefore: start + 1_000 * hour, underUnpublished: true });
    await reconcileCommands(used.db, { now: start + 30 * hour });
    await expireCommands(used.db, { now: start + 30 * hour });
    const row = await stored(request.id);
    assert.deepEqual([row.state, row.signature.length, row.notBefore], [0, 0, Infinity]);
    assert.ok(row.seq < 0);
  });

  it('a machine whose identity ends loses its held commands, and the release passes over them', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n10'), rebootLeaf('n11')]);
    await enqueueAll(used.db, [rebootIn('n10', { batchId }), rebootIn('n11', { batchId })]);
    await approve(used.db, batchId);
    await used.db.transaction((tx) => cancelCommandsOf(tx, { nodeId: 'n10', reason: 'node revoked', now: start }));
    assert.deepEqual(await releaseAll(used.db, batchId), { released: 1, existing: 1 });
  });

  it('a batch with waves is held until it is released, however soon it is approved', async () => {
    await forceQuorum(used.db, noQuorum);
    const waves = { size: 1, maxFailures: 0, pauseMs: 0, healthGate: false };
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n0'), rebootLeaf('n1')], { waves, context: { quorum: noQuorum } });
    assert.equal((await enqueueAll(used.db, [rebootIn('n0', { batchId }), rebootIn('n1', { batchId })])).held.length, 2);
    assert.deepEqual(await releaseAll(used.db, batchId, { from: 0, to: 1 }), { released: 1, existing: 0 });
  });

  it('counts how far it is, over all and for each value of a label', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n0'), rebootLeaf('n1'), rebootLeaf('n2')]);
    await used.db.query({ text: `update nodes set labels = labels || '{"rack": "r1"}' where id in ('n0', 'n1')` });
    const requests = ['n0', 'n1', 'n2'].map((id) => rebootIn(id, { batchId }));
    await enqueueAll(used.db, requests);
    assert.deepEqual(await labelsAhead(used.db, batchId, { label: 'rack', from: 1, limit: 10 }), ['r1', '']);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId, { from: 0, to: 2 });
    await used.db.query({ text: 'update node_commands set state = 3, finished_at = $2 where id = $1' }, [
      requests[0]!.id,
      new Date(start + 7),
    ]);
    const { states, ...counts } = await batchProgress(used.db, batchId, { now: start });
    assert.deepEqual(counts, { members: 3, held: 1, running: 1, failed: 1, unhealthy: 2, lastEndedAt: start + 7, isDone: false });
    assert.deepEqual(states, { open: 2, failed: 1 });
    const byRack = await progressByLabel(used.db, batchId, { label: 'rack', now: start });
    assert.deepEqual(
      byRack.map(({ label, members: all, held, failed }) => [label, all, held, failed]),
      [
        ['', 1, 1, 0],
        ['r1', 2, 0, 1],
      ],
    );
  });

  it('QUO-031 the batch is inside of what the worker signs', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n3')]);
    const request = rebootIn('n3', { batchId });
    await enqueueAll(used.db, [request]);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId);
    const { body, signature } = await stored(request.id);
    const roots = [...(await testBundle()).commandRootsById.values()].map((root) => root.certificate.der);
    const changed = Buffer.from(
      Buffer.from(body)
        .toString('latin1')
        .replace(batchId, `${batchId.slice(0, -1)}!`),
      'latin1',
    );
    const verify = (bytes: Uint8Array) =>
      verifyIntent({
        purpose: 'command',
        body: bytes,
        signature: fromBinary(SignatureSchema, signature),
        roots,
        now: start,
        required: true,
      });
    assert.ok(verify(body) !== null);
    assert.throws(() => verify(changed), refused('BAD_SIGNATURE', /./, 'bad-signature'));
    assert.equal((await findCommand(used.db, request.id))?.batchId, batchId);
  });

  it('a command of a batch cannot also be scheduled', async () => {
    const { batchId } = await createBatchOf(used.db, [rebootLeaf('n3')]);
    const both = rebootIn('n3', { batchId, notBeforeMs: start + minute });
    await assert.rejects(enqueueAll(used.db, [both]), refused('INVALID_INPUT', /due when the batch is released/, 'not-before'));
  });
});
