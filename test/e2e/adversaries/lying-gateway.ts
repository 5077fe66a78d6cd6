/** A gateway that was taken over, in front of node-3: it may strip, swap, repeat and delay what travels beside a command, and say what time it is. */
import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { hour } from '../../../domain/time.ts';
import { BatchApprovalSchema, type Command, type ServerFrame } from '../../../proto/index.ts';
import { eventually } from '../../harness/eventually.ts';
import { type Lie, type LyingGateway, startLyingGateway } from '../../harness/lying-gateway.ts';
import { patienceMs, type Scene } from './scene.ts';

const node = 'node-3';

/** Another frame in place of one that carries a command. */
const onCommand =
  (change: (command: Command) => readonly Command[]): Lie =>
  (frame) =>
    frame.frame.case === 'command' ? change(frame.frame.value).map((value) => ({ ...frame, frame: { case: 'command', value } })) : [frame];

const without = (command: Command, what: 'batchApproval' | 'batchProof'): Command => {
  const { [what]: _, ...rest } = command;
  return rest;
};

/** Each word about the time, moved. */
const atTime =
  (movedMs: number): Lie =>
  ({ frame, ...rest }) => {
    if (frame.case !== 'welcome' && frame.case !== 'heartbeatAck') return [{ ...rest, frame }];
    const value = { ...frame.value, serverTimeMs: frame.value.serverTimeMs + BigInt(movedMs) };
    return [{ ...rest, frame: { case: frame.case, value } } as ServerFrame];
  };

export function lyingGateway(the: () => Scene): void {
  describe('a gateway that lies to a machine', () => {
    let gateway: LyingGateway;
    before(async () => {
      const scene = the();
      const { stack } = scene;
      const daemon = stack.daemon(node);
      await daemon.stop();
      gateway = await startLyingGateway({ home: stack.home, target: stack.address('gateway'), folder: daemon.folder });
      await daemon.dial(gateway.url);
      await daemon.start();
    });
    after(async () => {
      const scene = the();
      const { stack } = scene;
      await stack.daemon(node).stop();
      await stack.daemon(node).dial(stack.address('gateway'));
      await gateway?.close();
      await stack.daemon(node).start();
    });
    const commands = (): Command[] => gateway.heard.flatMap(({ frame }) => (frame.case === 'command' ? [frame.value] : []));
    const redial = async (): Promise<void> => {
      gateway.cut();
      await the().stack.daemon(node).untilConnected();
    };

    it('DMN-010 DMN-021 DMN-032 QUO-031 strips and swaps what travels beside a command: refused by its word, and the leaf stays free', async () => {
      const scene = the();
      const { anna, ben } = scene;
      const [mine, theirs] = [
        { node, reason: 'mine' },
        { node, reason: 'theirs' },
      ];
      const [batch, other] = [await scene.hold([mine, theirs]), await scene.hold([mine])];
      await scene.approve(batch, anna, ben);
      await scene.approve(other, anna, ben);
      await scene.nothingHappens(async () => {
        // What it keeps to swap with: genuine, of this machine, and never delivered.
        gateway.lie(onCommand(() => []));
        const heard = commands().length;
        const withheld = await scene.put(batch, theirs);
        const sibling = await eventually('what is withheld', () => commands()[heard], patienceMs);
        gateway.lie(onCommand((command) => [without(command, 'batchApproval')]));
        await redial();
        await scene.refusedByMachine(withheld, /^batch-unapproved: no-approval: /);
        const [row] = await scene.query('select approval from command_batches where id = $1', other.batchId);
        const foreign = fromBinary(BatchApprovalSchema, row?.['approval'] as Buffer);
        const lies: [lie: (command: Command) => Command, verdict: RegExp][] = [
          [(command) => without(command, 'batchProof'), /^batch-unapproved: no-proof: /],
          [(command) => ({ ...command, batchProof: sibling.batchProof }), /^batch-unapproved: not-in-scope: /],
          [(command) => ({ ...command, batchApproval: foreign }), /^batch-unapproved: batch-differs: /],
          [(command) => ({ ...command, signature: sibling.signature }), /^bad-signature: /],
        ];
        for (const [lie, verdict] of lies) {
          gateway.lie(onCommand((command) => [lie(command)]));
          await scene.refusedByMachine(await scene.put(batch, mine), verdict);
        }
        gateway.lie(null);
      });
      for (const leaf of [mine, theirs]) await scene.runs(leaf.node, () => scene.put(batch, leaf));
    });

    it('DMN-012 DMN-014 DMN-015 repeats a command, in this session and in the next, and one machine’s to another: it ran once', async () => {
      const scene = the();
      const { anna, ben } = scene;
      const leaf = { node, reason: 'repeated' };
      const batch = await scene.hold([leaf]);
      await scene.approve(batch, anna, ben);
      const before = scene.boots(node);
      gateway.lie(onCommand((command) => [command, command]));
      const id = await scene.put(batch, leaf);
      assert.equal((await scene.end(id)).state, 'done');
      const used = commands().at(-1);
      assert.equal(scene.boots(node), before + 1);
      await scene.nothingHappens(async () => {
        // Behind each welcome what was there before, of the new session by its epoch.
        gateway.lie((frame) => {
          if (frame.frame.case !== 'welcome' || used === undefined) return [frame];
          return [frame, { ...frame, frame: { case: 'command', value: { ...used, epoch: frame.frame.value.epoch } } }];
        });
        await redial();
      });
      gateway.lie(null);
      assert.equal(scene.boots(node), before + 1);
    });

    it('DMN-009 DMN-016 delays one past the end of its approval, and moves the time: refused, and two hours back bring no leaf back', async () => {
      const scene = the();
      const { insider, anna, ben } = scene;
      const [late, used] = [
        { node, reason: 'late' },
        { node, reason: 'used' },
      ];
      const batch = await scene.hold([late, used]);
      await scene.approve(batch, anna, ben);
      const over = await the().over(node);
      const before = scene.boots(node);
      assert.equal((await scene.end(await scene.put(batch, used))).state, 'done');
      await scene.nothingHappens(async () => {
        gateway.lie(atTime(2 * hour));
        await redial();
        await scene.refusedByMachine(await scene.put(batch, late), /^expired: /);
        await scene.refusedByMachine(
          await insider.slip(batch, { ...late, expiresInMs: 5 * hour }),
          /^batch-unapproved: approval-expired: /,
        );
        gateway.lie(atTime(-2 * hour));
        await redial();
        await scene.refusedByMachine(await scene.put(batch, used), /^batch-unapproved: leaf-used: /);
        // What it could keep alive ends where signed statements prove that time has passed.
        const ended = { ...over.leaf, expiresInMs: 5 * hour };
        await scene.refusedByMachine(await insider.slip(over.batch, ended), /^batch-unapproved: approval-expired: /);
        gateway.lie(null);
        await redial();
      });
      assert.equal(scene.boots(node), before + 1);
    });
  });
}
