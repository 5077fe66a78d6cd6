import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { readOpenCommands, recordAcks } from '../../drizzle/queries/dispatch.ts';
import { readOpen } from '../../drizzle/queries/open-commands.ts';
import { commandFrame } from '../../gateway/session/command-frame.ts';
import { decodeProof, isIncluded, leafHash } from '../../pki/quorum/index.ts';
import { BatchApprovalSchema, BatchProofSchema } from '../../proto/index.ts';
import { useDatabase } from '../harness/postgres.ts';
import { planOf } from '../harness/query-plan.ts';
import {
  addNodes,
  approve,
  createBatchOf,
  enqueueAll,
  publishQuorum,
  rebootIn,
  rebootLeaf,
  releaseAll,
  start,
} from '../services/batch-support.ts';
import { command } from '../services/support.ts';

describe('dispatch of members of a batch', () => {
  const used = useDatabase({ max: 10 });
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['d0', 'd1', 'd2', 'd3', 'd4', 'd5']);
  });
  const read = (nodeId: string, limit = 10) => readOpenCommands(used.db, [{ nodeId, afterSeq: 0 }], limit);

  async function released(nodeId: string, window = {}) {
    const { batchId, root, size } = await createBatchOf(used.db, [rebootLeaf(nodeId), rebootLeaf('d5')], window);
    const request = rebootIn(nodeId, { batchId });
    await enqueueAll(used.db, [request]);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId);
    return { batchId, root, size, request };
  }

  it('BAT-026 BAT-028 QUO-034 selects a member once its batch is approved, with the approval and the proof of its own leaf', async () => {
    const { batchId, root, size } = await createBatchOf(used.db, [rebootLeaf('d0'), rebootLeaf('d1')]);
    const request = rebootIn('d0', { batchId });
    await enqueueAll(used.db, [request]);
    assert.deepEqual(await read('d0'), []);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId);
    const [row] = await read('d0');
    const [stored] = await used.db.query<{ proof: Buffer; approval: Buffer }>(
      {
        text: `select s.proof, b.approval from command_batch_members m join command_batch_scope s using (batch_id, leaf_index)
               join command_batches b on b.id = m.batch_id where m.command_id = $1`,
      },
      [request.id],
    );
    assert.ok(stored!.proof.equals(row!.proof!) && stored!.approval.equals(row!.approval!));
    const frame = commandFrame(row!, 1)!.frame as { case: 'command'; value: { batchApproval: unknown; batchProof: unknown } };
    assert.deepEqual(frame.value.batchProof, fromBinary(BatchProofSchema, stored!.proof));
    assert.deepEqual(frame.value.batchApproval, fromBinary(BatchApprovalSchema, stored!.approval));
    const hash = leafHash(batchId, { subject: 'd0', kind: 'node.reboot', payloadSha256: new Uint8Array() });
    assert.ok(isIncluded({ hash, proof: decodeProof(row!.proof!), root, size }));
    const outside = command('d0', { deadlineMs: start + 3_600_000 });
    await enqueueAll(used.db, [outside]);
    const free = (await read('d0')).find(({ id }) => id === outside.id)!;
    assert.deepEqual([free.approval, free.proof], [null, null]);
  });

  it('BAT-029 a new session reads it again with both, acknowledged or not', async () => {
    const { request } = await released('d1');
    const before = (await read('d1'))[0]!;
    const [{ epoch }] = (await used.db.query<{ epoch: number }>({ text: `select epoch from node_queue where node_id = 'd1'` })) as [
      { epoch: number },
    ];
    await recordAcks(used.db, [{ nodeId: 'd1', epoch, commandId: request.id, seq: before.seq }], start);
    const again = (await read('d1'))[0]!;
    assert.deepEqual([again.id, again.state, again.approval, again.proof], [request.id, 1, before.approval, before.proof]);
  });

  it('A-PKI-47 BAT-026 nothing of a batch goes out that is not approved, or past its end by the clock of the database', async () => {
    const { batchId } = await released('d2');
    const set = (change: string) => used.db.query({ text: `update command_batches set ${change} where id = $1` }, [batchId]);
    assert.equal((await read('d2')).length, 1);
    await set(`not_after = now() - interval '1 second'`);
    assert.deepEqual(await read('d2'), []);
    await set(`not_after = now() + interval '1 hour', state = 'pending'`);
    assert.deepEqual(await read('d2'), []);
    await set(`state = 'cancelled'`);
    assert.deepEqual(await read('d2'), []);
    await set(`state = 'approved'`);
    assert.equal((await read('d2')).length, 1);
  });

  it('a row whose approval or proof does not decode is no frame', () => {
    const row = {
      nodeId: 'd0',
      seq: 1,
      id: 'c',
      kind: 'node.reboot',
      lane: 'power',
      body: new Uint8Array(1),
      signature: new Uint8Array(),
      deadline: 0,
    };
    const bad = new Uint8Array([0xff, 0xff]);
    assert.ok(commandFrame({ ...row, state: 0 }, 1) !== undefined);
    assert.equal(commandFrame({ ...row, state: 0, proof: bad, approval: new Uint8Array() }, 1), undefined);
    assert.equal(commandFrame({ ...row, state: 0, proof: new Uint8Array(), approval: bad }, 1), undefined);
  });

  /** Held members of a batch, and a scope as large as they come, so that reading whole tables would be the dearer way. */
  async function holdRows(batchId: string, { from, to }: { from: number; to: number }): Promise<void> {
    const rows = 'from generate_series($2::int + 1, $3::int) i';
    for (const text of [
      `insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, batch_id, not_before, deadline)
       select 'd3', -1000 - i, 'held/' || i, 'node.reboot', 'power', '', '', '', '', '-infinity', $1, 'infinity', now() + interval '1 day' ${rows}`,
      `insert into command_batch_members (batch_id, member_index, command_id, leaf_index) select $1, 1000 + i, 'held/' || i, 0 ${rows}`,
      `insert into command_batch_scope (batch_id, leaf_index, leaf_hash, subject, kind, proof)
       select $1, 10 + i, sha256(i::text::bytea), 'x', 'node.reboot', '' ${rows}`,
    ])
      await used.db.query({ text }, [batchId, from, to]);
  }

  it('BAT-027 stays one indexed read with 100,000 held rows beside it, which take none of its limit', async function () {
    this.timeout(120_000);
    const heldRows = 100_000;
    const { batchId, request } = await released('d3');
    const portion = 20_000;
    for (let from = 0; from < heldRows; from += portion) await holdRows(batchId, { from, to: from + portion });
    await used.db.query({ text: 'analyze node_commands, command_batch_members, command_batch_scope, command_batches' });
    assert.deepEqual(
      (await read('d3', 1)).map(({ id }) => id),
      [request.id],
    );
    const nodes = await planOf(used.db, { text: readOpen.text }, [['d3', 'd4'], [0, 0], 32]);
    const scans = nodes.filter((node) => node['Relation Name'] !== undefined);
    for (const table of ['node_commands', 'command_batch_members', 'command_batch_scope']) {
      const own = scans.filter((node) => node['Relation Name'] === table);
      assert.ok(own.length > 0, `${table} is read`);
      for (const node of own) {
        assert.match(node['Node Type'], /Index/, `${table} by ${node['Node Type']}`);
        // What it looked at and threw away: held rows are outside of the range it reads.
        assert.ok(
          (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'] <= 4,
          `${table}: ${JSON.stringify(node)}`,
        );
      }
    }
  });
});
