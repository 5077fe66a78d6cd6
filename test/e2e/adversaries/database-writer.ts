/** Whoever writes the database: before a release he meets the signing worker, after it the machine. */
import assert from 'node:assert/strict';
import { leafHash } from '../../../pki/quorum/index.ts';
import { encodeApproval } from '../../../services/batches/approval-bytes.ts';
import { sha256 } from '../../harness/deployment.ts';
import { type Held, type Leaf, payloadBytes } from './leaves.ts';
import type { Scene } from './scene.ts';

interface Member {
  readonly batch: Held;
  readonly leaf: Leaf;
  readonly id: string;
}

export function databaseWriter(the: () => Scene): void {
  describe('the database writer', () => {
    const member = async (node: string, reason: string): Promise<Member> => {
      const leaf = { node, reason };
      const batch = await the().hold([leaf]);
      return { batch, leaf, id: await the().put(batch, leaf) };
    };
    /** Signed, and in the log of its machine. */
    const released = async (node: string, reason: string): Promise<Member> => {
      const one = await member(node, reason);
      await the().approve(one.batch, the().anna, the().ben);
      await the().released(one.id);
      return one;
    };
    const write = (text: string, ...values: unknown[]) => the().query(text, ...values);

    /** Puts a command under another batch, as its last member. */
    const move = async (id: string, { batchId }: Held): Promise<void> => {
      await write('delete from command_batch_members where command_id = $1', id);
      await write('update node_commands set batch_id = $2 where id = $1', id, batchId);
      await write(
        `with b as (update command_batches set members = members + 1 where id = $2 returning members - 1 as place)
         insert into command_batch_members (batch_id, member_index, command_id, leaf_index) select $2, place, $1, 0 from b`,
        id,
        batchId,
      );
    };
    const editPayload = async (id: string): Promise<void> => {
      const [row] = await write('select body from node_commands where id = $1', id);
      const body = Buffer.from(row?.['body'] as Buffer);
      body.write('PAYLOAD', body.indexOf('payload'));
      await write('update node_commands set body = $2, body_sha256 = $3 where id = $1', id, body, sha256(body));
    };
    const setApproval = ({ batchId }: Held, approval: Uint8Array | null) =>
      write('update command_batches set approval = $2 where id = $1', batchId, approval);
    const approvalOf = async ({ batchId }: Held): Promise<Buffer> => {
      const [row] = await write('select approval from command_batches where id = $1', batchId);
      return row?.['approval'] as Buffer;
    };
    const signaturesOf = async ({ batchId }: Held) =>
      (await write('select kid, signature from command_batch_approvals where batch_id = $1', batchId)).map((row) => ({
        kid: String(row['kid']),
        sig: new Uint8Array(row['signature'] as Buffer),
      }));

    it('BAT-062 H-05 edits before the release: the signing worker signs none of it, and no machine boots', async () => {
      const scene = the();
      const { anna, ben } = scene;
      await scene.nothingHappens(async () => {
        const flipped = await member('node-1', 'approved by a column');
        await scene.approve(flipped.batch, anna);
        await write(`update command_batches set state = 'approved', approved_at = now() where id = $1`, flipped.batch.batchId);
        await scene.releaseRefused(flipped.batch, /holds 1 of the 2 approvals that the published set asks for/);

        const edited = await member('node-1', 'payload');
        await editPayload(edited.id);
        await scene.approve(edited.batch, anna, ben);
        await scene.releaseRefused(edited.batch, /is not the leaf that its proof is of: it was changed after it was put into its batch/);

        const [moved, open] = [await member('node-1', 'moved'), await member('node-2', 'open')];
        await move(moved.id, open.batch);
        await scene.approve(open.batch, anna, ben);
        await scene.releaseRefused(open.batch, /says something else than its row/);

        const reused = await member('node-1', 'another batch');
        for (const { kid, sig } of await signaturesOf(open.batch))
          await write(
            `insert into command_batch_approvals (batch_id, kid, signature, approved_by) values ($1, $2, $3, 'anna')`,
            reused.batch.batchId,
            kid,
            Buffer.from(sig),
          );
        await write(`update command_batches set state = 'approved', approved_at = now() where id = $1`, reused.batch.batchId);
        await scene.releaseRefused(reused.batch, /holds 0 of the 2 approvals that the published set asks for/);
        for (const { id } of [flipped, edited, moved, open, reused]) {
          const [row] = await write('select length(signature) as signed, state from node_commands where id = $1', id);
          assert.deepEqual([row?.['signed'], row?.['state']], [0, 0], 'unsigned, and still held');
        }
      });
    });

    it('DMN-004 DMN-010 DMN-011 QUO-005 QUO-031 edits after the release: the machine refuses each by its word, and the leaf is still free', async () => {
      const scene = the();
      const { anna, ben, stack } = scene;
      const daemon = stack.daemon('node-1');
      const verdicts: [id: string, verdict: RegExp][] = [];
      const spared: Member[] = [];
      await scene.nothingHappens(async () => {
        await daemon.kill();
        const wanted = ['payload', 'reused', 'renamed', 'moved', 'stripped', 'shifted', 'what they approved'];
        const all = await Promise.all(wanted.map((reason) => released('node-1', reason)));
        const [edited, reused, renamed, moved, stripped, shifted, other] = all as [Member, Member, Member, Member, Member, Member, Member];
        const [truth, lie] = [await approvalOf(reused.batch), await approvalOf(other.batch)];
        await editPayload(edited.id);
        await setApproval(reused.batch, lie);
        await setApproval(renamed.batch, encodeApproval(renamed.batch, await signaturesOf(other.batch)));
        await setApproval(stripped.batch, null);
        await move(moved.id, other.batch);
        // Another place in the tree, as a page of the scope that was shifted.
        await write('update command_batch_scope set proof = $2 where batch_id = $1', shifted.batch.batchId, Buffer.from([0x08, 0x01]));
        // A leaf that nobody signed. The batch is approved, so its command is signed at once; its proof is of nothing.
        const widened = await scene.hold([{ node: 'node-1', reason: 'asked for' }]);
        await scene.approve(widened, anna, ben);
        const added = { node: 'node-1', reason: 'added' };
        const payloadSha256 = sha256(payloadBytes(added.reason));
        await write(
          `insert into command_batch_scope (batch_id, leaf_index, leaf_hash, subject, kind, proof, payload_sha256)
           select batch_id, 1, $2, subject, kind, proof, $3 from command_batch_scope where batch_id = $1`,
          widened.batchId,
          leafHash(widened.batchId, { subject: added.node, kind: 'node.reboot', payloadSha256 }),
          payloadSha256,
        );
        verdicts.push(
          [edited.id, /^bad-signature: /],
          [reused.id, /^batch-unapproved: batch-differs: /],
          [renamed.id, /^batch-unapproved: too-few-approvals: 0 of 2 approvals/],
          [moved.id, /^batch-unapproved: batch-differs: /],
          [stripped.id, /^batch-unapproved: no-approval: /],
          [shifted.id, /^batch-unapproved: proof-malformed: /],
          [await scene.put(widened, added), /^batch-unapproved: not-in-scope: /],
        );
        spared.push(edited, reused);
        await write(`update node_commands set state = 5, finished_at = now() where id = $1`, other.id);
        await daemon.start();
        for (const [id, verdict] of verdicts) await scene.refusedByMachine(id, verdict);
        await setApproval(reused.batch, truth);
      });
      for (const { batch, leaf } of spared) await scene.runs(leaf.node, () => scene.put(batch, leaf));
    });

    it('DMN-005 DMN-006 with a signing worker of his own he has what he wrote signed, and the machine counts for itself', async () => {
      const scene = the();
      const { insider, anna } = scene;
      await scene.nothingHappens(async () => {
        const leaf = { node: 'node-2', reason: 'alone' };
        const [none, one] = [await scene.hold([leaf]), await scene.hold([leaf])];
        const approval = encodeApproval(one, [await scene.sign(one, anna)]);
        await scene.refusedByMachine(await insider.slip(none, leaf), /^batch-unapproved: no-approval: /);
        await scene.refusedByMachine(
          await insider.slip(one, { ...leaf, approval }),
          /^batch-unapproved: too-few-approvals: 1 of 2 approvals/,
        );
      });
    });
  });
}
