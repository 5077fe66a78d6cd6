/** Approvers who are not what they should be: one who counts himself twice, and one who was removed. */
import assert from 'node:assert/strict';
import { encodeApproval } from '../../../services/batches/approval-bytes.ts';
import { malleated } from '../../harness/approvers.ts';
import type { Scene } from './scene.ts';

export function dishonestApprovers(the: () => Scene): void {
  describe('approvers', () => {
    it('DMN-007 DMN-008 H-09 one who signs twice, in the other form and under a second id of his key, is one voice at the api and at the machine', async () => {
      const scene = the();
      const { insider, anna } = scene;
      const leaf = { node: 'node-1', reason: 'alone' };
      const batch = await scene.hold([leaf]);
      const id = await scene.put(batch, leaf);
      const once = await scene.sign(batch, anna);
      const form = malleated(once);
      const second = { ...once, kid: 'f'.repeat(64) };
      await scene.nothingHappens(async () => {
        assert.equal((await scene.send(batch, once)).kind, 'recorded');
        for (const again of [once, form])
          assert.deepEqual(
            { ...(await scene.send(batch, again)), required: 2 },
            { kind: 'already', kid: anna.kid, have: 1, required: 2, released: false },
          );
        await assert.rejects(scene.send(batch, second), { code: 'PERMISSION_DENIED' });
        await scene.isHeld(id);
        const approval = encodeApproval(batch, [once, form, second, { ...form, kid: 'f'.repeat(64) }]);
        await scene.refusedByMachine(
          await insider.slip(batch, { ...leaf, approval }),
          /^batch-unapproved: too-few-approvals: 1 of 2 approvals/,
        );
      });
    });

    it('APPR-008 BAT-062 one who was removed: his old signatures count no more, at the release and at the machine, and the rest can go on', async () => {
      const scene = the();
      const { insider, anna, ben, cleo } = scene;
      const leaf = { node: 'node-2', reason: 'before he left' };
      const [batch, slipped] = [await scene.hold([leaf]), await scene.hold([leaf])];
      await scene.approve(batch, anna, cleo);
      const approval = encodeApproval(slipped, await Promise.all([anna, cleo].map((by) => scene.sign(slipped, by))));
      await scene.introduce([anna, ben], 2, [anna, ben]);
      await scene.nothingHappens(async () => {
        await assert.rejects(scene.put(batch, leaf), /holds 1 of the 2 approvals that the published set asks for/);
        await scene.refusedByMachine(
          await insider.slip(slipped, { ...leaf, approval }),
          /^batch-unapproved: too-few-approvals: 1 of 2 approvals/,
        );
      });
      await scene.approve(batch, ben);
      await scene.runs(leaf.node, () => scene.put(batch, leaf));
    });
  });
}
