/** What a control plane has forgotten, and what it takes for the time: the machine remembers, and knows what signed statements prove. */
import assert from 'node:assert/strict';
import { hour } from '../../../domain/time.ts';
import { eventually } from '../../harness/eventually.ts';
import { copyDatabase } from '../../harness/restored-database.ts';
import { nodes, patienceMs, type Scene } from './scene.ts';

export function forgottenAndMoved(the: () => Scene): void {
  describe('a control plane that forgets, and one that is wrong about the time', () => {
    it('DMN-012 DMN-014 DMN-015 a restored database that forgot used leaves has them issued again: the machine runs none of them', async () => {
      const scene = the();
      const { stack, anna, ben } = scene;
      const leaf = { node: 'node-1', reason: 'once and forgotten' };
      const batch = await scene.hold([leaf]);
      const id = await scene.put(batch, leaf);
      await scene.approve(batch, anna);
      const backup = await copyDatabase(stack.address('database'));
      await eventually('the api is back', () => stack.api.getTrust().catch(() => undefined), patienceMs);
      const before = scene.boots('node-1');
      await scene.approve(batch, ben);
      assert.equal((await scene.end(id)).state, 'done');
      assert.equal(scene.boots('node-1'), before + 1);
      const watched = stack.client.workflow.getHandle(batch.workflowId);
      await eventually('the end of the batch', async () => (await watched.describe()).status.name === 'COMPLETED', patienceMs);

      await backup.restore();
      await eventually('the api is back', () => stack.api.getTrust().catch(() => undefined), patienceMs);
      await scene.nothingHappens(async () => {
        const [row] = await stack.api.getCommands(id);
        assert.equal(row?.state, 'open', 'it is held again, as if nothing had happened');
        await scene.approve(batch, ben);
        await stack.client.schedule.getHandle('bc-reconcile-batches').trigger();
        const again = await scene.end(id);
        assert.deepEqual(
          [again.state, /^(replay-mismatch|batch-unapproved: leaf-used): /.test(again.rejectReason ?? '')],
          ['rejected', true],
          again.rejectReason ?? '',
        );
        await scene.refusedByMachine(await scene.put(batch, leaf), /^batch-unapproved: leaf-used: /);
      });
      assert.equal(scene.boots('node-1'), before + 1);
    });

    it('DMN-009 DMN-016 DMN-029 its clock two hours on, then two hours back: approvals end early, none lives on, no leaf is free again', async () => {
      const scene = the();
      const { insider, anna, ben } = scene;
      const leaf = (reason: string) => ({ node: 'node-2', reason });
      const [used, late, fresh] = [leaf('used'), leaf('late'), leaf('fresh')];
      const over = await the().over('node-2');
      const batch = await scene.hold([used, late, fresh]);
      await scene.approve(batch, anna, ben);
      const before = scene.boots('node-2');
      assert.equal((await scene.end(await scene.put(batch, used))).state, 'done');
      assert.equal(scene.boots('node-2'), before + 1);
      const redial = () => Promise.all(nodes.map(async (node) => the().redial(node)));
      await scene.nothingHappens(async () => {
        try {
          await scene.moveClock(2 * hour);
          await redial();
          await assert.rejects(scene.put(batch, late), /is expired: it takes no command/);
          await scene.refusedByMachine(
            await insider.slip(batch, { ...late, expiresInMs: 5 * hour }),
            /^batch-unapproved: approval-expired: /,
          );
          await scene.moveClock(0);
          await redial();
          // Its own sessions stay; a new one it would refuse, because by its clock no certificate here is valid yet.
          await scene.moveClock(-2 * hour);
          await scene.refusedByMachine(await scene.put(batch, used), /^batch-unapproved: leaf-used: /);
          const ended = { ...over.leaf, expiresInMs: 5 * hour };
          await scene.refusedByMachine(await insider.slip(over.batch, ended), /^batch-unapproved: approval-expired: /);
        } finally {
          await scene.moveClock(0);
          await redial();
        }
      });
      await scene.runs('node-2', () => scene.put(batch, fresh));
    });
  });
}
