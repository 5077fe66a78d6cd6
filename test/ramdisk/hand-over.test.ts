/** The jump of a development machine: what the deployed system would find, handed to another program. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { changeGpt, encodeGpt } from '../../daemon/ramdisk/deploy/gpt.ts';
import { encodeSeed, seedBytes } from '../../daemon/ramdisk/deploy/seed.ts';
import { type HandOver, handOverJump, startHandOver } from '../../daemon/ramdisk/jump/after-jump.ts';
import { codeOf } from '../../domain/errors.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { boot, mebibyte, stageRamdisk } from './stage.ts';

describe('bcd ramdisk --after-jump', () => {
  after(removeScratchFolders);

  it('finds the configuration of the disk it was told, and nothing on a disk without one', async () => {
    const stage = await stageRamdisk();
    const diskBytes = 20 * mebibyte;
    const empty = {
      blockBytes: 512,
      diskGuid: Buffer.alloc(16, 1),
      firstUsable: 2048,
      lastUsable: 2048,
      entryCount: 128,
      entryBytes: 128,
      partitions: [],
    };
    const { gpt, appended } = changeGpt(empty, {
      diskBytes,
      grow: 0,
      append: { bytes: seedBytes(512), name: 'CIDATA', guid: Buffer.alloc(16, 2) },
    });
    const content = Buffer.alloc(diskBytes);
    content.set(encodeGpt(gpt, diskBytes).primary, 512);
    content.set(
      encodeSeed({ 'bc-join': Buffer.from('bcjoin1.abc'), 'user-data': Buffer.from('#cloud-config\n') }, 512, 7),
      (appended?.first ?? 0) * 512,
    );
    stage.disk('vda', { serial: 'A', content });
    stage.disk('vdb', { serial: 'B' });
    const out = join(scratchFolder(), 'out');
    const left: HandOver[] = [];
    const command = `cat "$BETTER_COMPUTE_SEED/bc-join" > ${out}; echo " $BETTER_COMPUTE_NODE $BETTER_COMPUTE_RUN $BETTER_COMPUTE_BOOTED" >> ${out}`;
    const jump = handOverJump({ disks: stage.ports.disks, scratch: stage.ports.scratch, command, boot }, (to) => left.push(to));
    const wanted = { diskPath: join(stage.folder, 'vda.img'), partition: 0, kernelArgs: '', reboot: false };
    await assert.rejects(jump.go({ ...wanted, diskPath: join(stage.folder, 'vdb.img') }), (error) => codeOf(error) === 'UNSUPPORTED');
    writeFileSync(out, '');
    await jump.go(wanted);
    assert.equal(left.length, 1);
    await once(startHandOver(left[0] as HandOver), 'exit');
    assert.equal(readFileSync(out, 'utf8'), 'bcjoin1.abc node-1 a1b2c3d4e5f6 kexec\n');
  });
});
