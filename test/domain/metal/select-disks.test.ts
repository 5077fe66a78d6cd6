import assert from 'node:assert/strict';
import { selectDisk } from '../../../domain/metal/select-disks.ts';

describe('the disk that a command names', () => {
  const disk = { name: 'sda', serial: 'A1', wwn: 'naa.1', model: 'M', sizeBytes: 1_000 };
  const other = { name: 'sdb', serial: 'B2', wwn: 'naa.2', model: 'N', sizeBytes: 2_000 };
  const any = { serial: '', wwn: '', model: '', sizeBytes: 0n };
  const fields = { serial: ['A1', 'B2'], wwn: ['naa.1', 'naa.2'], model: ['M', 'N'], sizeBytes: [1_000n, 2_000n] } as const;
  const named = { serial: 'A1', wwn: 'naa.1', model: 'M', sizeBytes: 1_000n };

  for (const [field, [own, wrong]] of Object.entries(fields)) {
    it(`M46 is found by its ${field} alone, whatever the kernel calls it`, () => {
      assert.equal(selectDisk([other, { ...disk, name: 'sdb' }], { ...any, [field]: own }).serial, 'A1');
    });

    it(`M46 M47 is none where its ${field} is another one, however much else fits`, () => {
      assert.equal(selectDisk([disk, other], named), disk);
      assert.throws(() => selectDisk([disk, other], { ...named, [field]: wrong }), {
        code: 'NOT_FOUND',
        message: /^no disk has .*: this machine has sda \(serial A1, .*; sdb \(serial B2, /,
      });
    });
  }
});
