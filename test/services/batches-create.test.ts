import assert from 'node:assert/strict';
import { ControlError } from '../../domain/errors.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import { findBatches } from '../../drizzle/queries/batches.ts';
import { decodeProof, isIncluded, leafHash } from '../../pki/quorum/index.ts';
import { noQuorum } from '../../pki/trust/index.ts';
import { createCommandBatch, type LeafInput, readBatch, readScopePage } from '../../services/batches/index.ts';
import { useDatabase } from '../harness/postgres.ts';
import {
  addNodes,
  createBatchOf,
  publishQuorum,
  quorumOfApprovers,
  rebootLeaf,
  rebootType,
  rebootValue,
  start,
  three,
  twoOfThree,
} from './batch-support.ts';
import { refused, sha256, trustDomain } from './support.ts';

describe('creating a batch', () => {
  const used = useDatabase({ max: 10, statementTimeoutMs: 60_000 });
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['n1', 'n2', 'n3', 'n4', 'n5', 'n6']);
    await addNodes(used.db, ['b1', 'b2'], 'other');
  });
  const scope = ['n1', 'n2', 'n3'].map((id) => rebootLeaf(id));
  const countOf = async (table: string): Promise<number> =>
    (await used.db.query<{ n: number }>({ text: `select count(*) as n from ${table}` }))[0]?.n ?? -1;
  const events = (subject: string) =>
    used.db.query<{ action: string; tenant: string; details: Record<string, unknown> }>(
      { text: `select action, tenant_id as tenant, details from audit_events where subject = $1 order by seq` },
      [subject],
    );

  it('BAT-003 happens in the transaction of its caller: rolled back, it leaves nothing', async () => {
    const before = await countOf('command_batches');
    const rolledBack = used.db.transaction(async (tx) => {
      const request = { tenantId: 'default', scope, reason: 'never mind', createdBy: 'olga' };
      await createCommandBatch(tx, request, { now: start, quorum: twoOfThree, trustDomain });
      throw new ControlError('CANCELLED', 'no');
    });
    await assert.rejects(rolledBack, /no/);
    assert.equal(await countOf('command_batches'), before);
  });

  it('BAT-004 QUO-006 stores root, size and the proof of every leaf, each of which proves its leaf', async () => {
    const { batchId, root, size } = await createBatchOf(used.db, [...scope, rebootLeaf('n1')]);
    assert.equal(size, 3, 'a leaf that a module lists twice is one');
    const rows = await used.db.query<{ i: number; hash: Buffer; subject: string; kind: string; proof: Buffer; digest: Buffer }>(
      {
        text: `select leaf_index as i, leaf_hash as hash, subject, kind, proof, payload_sha256 as digest from command_batch_scope where batch_id = $1`,
      },
      [batchId],
    );
    assert.equal(rows.length, 3);
    for (const { i, hash, subject, kind, proof, digest } of rows) {
      const own = leafHash(batchId, { subject, kind, payloadSha256: digest });
      assert.ok(own.equals(hash));
      const stored = decodeProof(proof);
      assert.equal(stored.index, i);
      assert.ok(isIncluded({ hash, proof: stored, root, size }));
    }
  });

  it('BAT-006 BAT-044 ends after 24 hours by default; a request may ask for 60 s to 72 h, a module for 720 h', async () => {
    const request = { origin: 'request' as const };
    const endOf = async (init: Parameters<typeof createBatchOf>[2]): Promise<number> => {
      const { batchId } = await createBatchOf(used.db, scope, init);
      return (await readBatch(used.db, batchId, { now: start })).notAfterMs - start;
    };
    assert.equal(await endOf({}), day);
    assert.equal(await endOf({ windowMs: minute, context: request }), minute);
    assert.equal(await endOf({ windowMs: 72 * hour, context: request }), 72 * hour);
    assert.equal(await endOf({ windowMs: 720 * hour }), 720 * hour);
    for (const windowMs of [59 * second, 72 * hour + second, Number.NaN]) {
      await assert.rejects(
        createBatchOf(used.db, scope, { windowMs, context: request }),
        refused('INVALID_INPUT', /60 s to 72 h/, 'batch-window'),
      );
    }
    await assert.rejects(
      createBatchOf(used.db, scope, { windowMs: 721 * hour }),
      refused('INVALID_INPUT', /60 s to 720 h/, 'batch-window'),
    );
  });

  it('BAT-007 BAT-009 needs what the tiers say for its size, and says whether it is held', async () => {
    const quorum = quorumOfApprovers({ approvers: three, tiers: [{ maxScopeSize: 2, threshold: 1 }] });
    const two = await createBatchOf(used.db, scope.slice(0, 2), { context: { quorum } });
    const all = await createBatchOf(used.db, scope, { context: { quorum } });
    assert.deepEqual([two.held, two.required, two.size], [true, 1, 2]);
    assert.deepEqual([all.held, all.required, all.size], [true, 2, 3]);
    const free = await createBatchOf(used.db, scope, { context: { quorum: noQuorum } });
    assert.deepEqual([free.held, free.required, free.size], [false, 0, 3]);
    assert.equal((await readBatch(used.db, free.batchId, { now: start })).state, 'approved');
  });

  it('BAT-005 BAT-043 takes 50,000 leaves, and neither one more nor none', async function () {
    this.timeout(60_000);
    const nodes = Array.from({ length: 50_000 }, (_, at) => `fleet-${at}`);
    await used.db.query({ text: `insert into nodes (id, site_id, role) select unnest($1::text[]), 'berlin', 'node'` }, [nodes]);
    const all = nodes.map((id) => rebootLeaf(id));
    const { batchId, size } = await createBatchOf(used.db, all, { context: { origin: 'request' } });
    assert.equal(size, 50_000);
    let seen = 0;
    for (let afterIndex: number | null = -1; afterIndex !== null; ) {
      const page = await readScopePage(used.db, batchId, { afterIndex });
      assert.ok(page.leaves.length <= 5_000);
      assert.equal(page.leaves[0]?.index, afterIndex + 1);
      seen += page.leaves.length;
      afterIndex = page.next;
    }
    assert.equal(seen, 50_000);
    await assert.rejects(createBatchOf(used.db, [...all, rebootLeaf('n1')]), refused('INVALID_INPUT', /50001 leaves/, 'too-many-leaves'));
    await assert.rejects(createBatchOf(used.db, []), refused('INVALID_INPUT', /empty/, 'empty-scope'));
  });

  it('a request that lists a leaf twice is refused, naming both places', async () => {
    const listed = [...scope, rebootLeaf('n2')];
    const twice = createBatchOf(used.db, listed, { context: { origin: 'request' } });
    await assert.rejects(twice, refused('INVALID_INPUT', /leaf 4 \(node.reboot on n2\) is leaf 2 again/, 'duplicate-leaf'));
  });

  it('QUO-016 QUO-019 QUO-020 QUO-021 derives the digest from a payload, refuses one that differs, and keeps the payload to be read', async () => {
    const value = rebootValue('because');
    const payload = { typeUrl: rebootType, value };
    const { batchId } = await createBatchOf(used.db, [
      rebootLeaf('n1', { payload }),
      rebootLeaf('n2', { payload, payloadSha256: sha256(value) }),
    ]);
    const { leaves } = await readScopePage(used.db, batchId, { afterIndex: -1 });
    for (const leaf of leaves) {
      assert.ok(sha256(value).equals(leaf.payloadSha256));
      assert.deepEqual([leaf.payload?.typeUrl, Buffer.from(leaf.payload?.value ?? [])], [rebootType, Buffer.from(value)]);
    }
    const lying = rebootLeaf('n1', { payload, payloadSha256: sha256(Buffer.from('other')) });
    await assert.rejects(
      createBatchOf(used.db, [lying]),
      refused('INVALID_INPUT', /leaf 1: payloadSha256 is not the digest/, 'payload-digest'),
    );
    const short = rebootLeaf('n1', { payloadSha256: new Uint8Array(31) });
    await assert.rejects(createBatchOf(used.db, [short]), refused('INVALID_INPUT', /31 bytes/, 'payload-digest'));
  });

  it('QUO-022 a payload carries the type of its kind and decodes as that', async () => {
    const value = rebootValue();
    for (const typeUrl of [
      'type.googleapis.com/bettercompute.agent.v1.InventoryRefresh',
      'bettercompute.agent.v1.NodeReboot',
      `x/${rebootType}`,
    ]) {
      const leaf = rebootLeaf('n1', { payload: { typeUrl, value } });
      await assert.rejects(
        createBatchOf(used.db, [leaf]),
        refused('INVALID_INPUT', /leaf 1: the payload of node.reboot is/, 'payload-type'),
      );
    }
    const leaf = rebootLeaf('n1', { payload: { typeUrl: rebootType, value: Buffer.from([0xff, 0xff]) } });
    await assert.rejects(createBatchOf(used.db, [leaf]), refused('INVALID_INPUT', /does not decode/, 'payload-malformed'));
  });

  /** A reboot whose payload has exactly so many bytes. */
  const valueOf = (bytes: number): Uint8Array => {
    const overhead = bytes > 16_386 ? 4 : bytes > 129 ? 3 : 2;
    return rebootValue('r'.repeat(bytes - overhead));
  };

  it('QUO-017 QUO-018 bounds a payload at 64 KiB and those of a batch at 8 MiB, to the byte', async function () {
    this.timeout(20_000);
    const leafOf = (id: string, bytes: number): LeafInput => rebootLeaf(id, { payload: { typeUrl: rebootType, value: valueOf(bytes) } });
    assert.equal(valueOf(65_536).length, 65_536);
    assert.equal((await createBatchOf(used.db, [leafOf('n1', 65_536)])).size, 1);
    await assert.rejects(
      createBatchOf(used.db, [leafOf('n1', 65_537)]),
      refused('INVALID_INPUT', /65537 bytes, at most 65536/, 'payload-too-large'),
    );
    const full = Array.from({ length: 128 }, (_, at) => leafOf(`fleet-${at}`, 65_536));
    const { batchId } = await createBatchOf(used.db, full);
    const { leaves, next } = await readScopePage(used.db, batchId, { afterIndex: -1 });
    assert.deepEqual([leaves.length, next], [128, null]);
    const over = [...full, leafOf('n1', 8)];
    await assert.rejects(
      createBatchOf(used.db, over),
      refused('INVALID_INPUT', /more than 8388608 bytes together, from leaf 129/, 'payloads-too-large'),
    );
  });

  it('QUO-023 QUO-025 a machine of another tenant is answered as one that is not there', async () => {
    for (const id of ['b1', 'nobody']) {
      await assert.rejects(
        createBatchOf(used.db, [...scope, rebootLeaf(id)]),
        refused('NOT_FOUND', new RegExp(`tenant default has no machine ${id}`), 'unknown-machine'),
      );
    }
    assert.equal((await createBatchOf(used.db, [rebootLeaf('b1')], { tenantId: 'other' })).size, 1);
    await assert.rejects(
      createBatchOf(used.db, scope, { tenantId: 'nobodys' }),
      refused('NOT_FOUND', /no tenant is called nobodys/, 'unknown-tenant'),
    );
  });

  it('QUO-026 a malformed subject, a look-alike and a kind that does not exist are each told, with their place', async () => {
    const refusals: readonly [LeafInput, RegExp, string][] = [
      [rebootLeaf('bmc:agent'), /leaf 2: "bmc:agent" is no subject/, 'bad-subject'],
      [rebootLeaf('n\u0430'), /leaf 2: "n\\u0430" is no subject/, 'bad-subject'],
      [rebootLeaf(''), /leaf 2: "" is no subject/, 'bad-subject'],
      [rebootLeaf('bmc:n1/10.0.0.1'), /acts on a subject of the form "node", not "bmc"/, 'subject-form'],
      [rebootLeaf('node:n1'), /acts on a subject of the form "node", not "target"/, 'subject-form'],
      [{ subject: 'n1', kind: 'node.explode' }, /leaf 2: there is no command kind "node.explode"/, 'unknown-kind'],
    ];
    for (const [leaf, message, reason] of refusals)
      await assert.rejects(createBatchOf(used.db, [rebootLeaf('n1'), leaf]), refused('INVALID_INPUT', message, reason));
  });

  it('BAT-041 a reason has up to 500 characters, none of which deceives', async () => {
    assert.equal((await createBatchOf(used.db, scope, { reason: 'r'.repeat(500) })).size, 3);
    await assert.rejects(
      createBatchOf(used.db, scope, { reason: 'r'.repeat(501) }),
      refused('INVALID_INPUT', /501 characters/, 'reason-too-long'),
    );
    await assert.rejects(createBatchOf(used.db, scope, { reason: ' ' }), refused('INVALID_INPUT', /empty/, 'empty-reason'));
    await assert.rejects(createBatchOf(used.db, scope, { reason: 'a\u202eb' }), refused('INVALID_INPUT', /U\+202E/, 'deceptive-reason'));
  });

  it('BAT-045 BAT-046 BAT-047 BAT-048 the same request is the same batch, announced once; another under its key is a conflict', async () => {
    const asked = { idempotencyKey: 'k1' };
    const first = await createBatchOf(used.db, scope, asked);
    const again = await createBatchOf(used.db, scope.toReversed(), { ...asked, context: { now: start + minute } });
    assert.deepEqual([first.created, again.created, again.batchId], [true, false, first.batchId]);
    assert.deepEqual(
      (await events(first.batchId)).map(({ action, tenant }) => [action, tenant]),
      [['command.batch.created', 'default']],
    );
    for (const change of [{ reason: 'another' }, { windowMs: hour }, { waves: { size: 1, maxFailures: 0, pauseMs: 0, healthGate: false } }])
      await assert.rejects(
        createBatchOf(used.db, scope, { ...asked, ...change }),
        refused('CONFLICT', /key k1 was used/, 'idempotency-key-used'),
      );
    await assert.rejects(createBatchOf(used.db, scope.slice(1), asked), refused('CONFLICT', /key k1 was used/));
    const others = [
      await createBatchOf(used.db, [rebootLeaf('b1')], { ...asked, tenantId: 'other' }),
      await createBatchOf(used.db, scope, { ...asked, createdBy: 'paul' }),
      await createBatchOf(used.db, scope, { idempotencyKey: 'k2' }),
      await createBatchOf(used.db, scope),
    ];
    assert.equal(new Set([first, ...others].map(({ batchId }) => batchId)).size, 5);
  });

  it('BAT-045 two calls of one request at once make one batch', async () => {
    const made = await Promise.all(Array.from({ length: 4 }, () => createBatchOf(used.db, scope, { idempotencyKey: 'at-once' })));
    assert.equal(new Set(made.map(({ batchId }) => batchId)).size, 1);
    assert.equal(made.filter(({ created }) => created).length, 1);
  });

  it('BAT-052 keeps the agent and the delegation beside the person', async () => {
    const { batchId } = await createBatchOf(used.db, scope, { createdByAgent: 'agent-7', delegationId: 'd-1' });
    const view = await readBatch(used.db, batchId, { now: start });
    assert.deepEqual([view.createdBy, view.createdByAgent, view.delegationId], ['olga', 'agent-7', 'd-1']);
    const [event] = await events(batchId);
    assert.deepEqual([event?.details['agent'], event?.details['delegation']], ['agent-7', 'd-1']);
    assert.equal((await findBatches(used.db, [batchId]))[0]?.createdByAgent, 'agent-7');
  });

  it('refuses waves that no release could follow, with every fault', async () => {
    const waves = { size: 0, percent: 5, maxFailures: -1, pauseMs: 0, healthGate: false };
    await assert.rejects(
      createBatchOf(used.db, scope, { waves }),
      refused('INVALID_INPUT', /one of the two.*size 0.*maxFailures -1/, 'bad-waves'),
    );
  });
});
