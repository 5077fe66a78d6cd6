import assert from 'node:assert/strict';
import fc from 'fast-check';
import { chooseDisk, type SeenDisk } from '../../../domain/metal/disks.ts';

const disk = (changes: Partial<SeenDisk> = {}): SeenDisk => ({
  name: 'nvme0n1',
  serial: 'S1',
  wwn: 'eui.0001',
  model: 'PM9A3',
  sizeBytes: 960_000_000_000,
  transport: 'nvme',
  rotational: false,
  removable: false,
  ...changes,
});
const two = [disk(), disk({ name: 'nvme1n1', serial: 'S2', wwn: 'eui.0002' })];

describe('the disk that a profile means', () => {
  it('M46 is the same whatever the kernel calls the disks and in whichever order it lists them', () => {
    const names = ['sda', 'sdb', 'nvme0n1', 'nvme1n1'];
    fc.assert(
      fc.property(fc.shuffledSubarray(names, { minLength: 2, maxLength: 2 }), fc.boolean(), (given, turned) => {
        const named = two.map((one, at) => ({ ...one, name: given[at] as string }));
        const chosen = chooseDisk(turned ? named.toReversed() : named, { transport: 'nvme' }, 'lowest-serial');
        assert.ok(chosen.ok);
        assert.deepEqual(chosen.choice, { serial: 'S1', wwn: 'eui.0001', sizeBytes: 960_000_000_000, model: 'PM9A3' });
      }),
    );
  });

  it('M46 several that match are refused, unless the profile says which of them', () => {
    const chosen = chooseDisk(two, { transport: 'nvme' }, 'only');
    assert.ok(!chosen.ok && chosen.reason === 'several-disks');
    assert.match(chosen.message, /^2 disks match: S1 .*, S2 /);
    const same = chooseDisk(two, {}, 'smallest');
    assert.ok(!same.ok && same.reason === 'several-disks', 'two of one size are not told apart by size');
    assert.ok(chooseDisk([...two, disk({ serial: 'S3', wwn: 'eui.0003', sizeBytes: 1_000 })], {}, 'smallest').ok);
  });

  it('M47 none that matches is a refusal, never any disk', () => {
    const chosen = chooseDisk(two, { serial: 'S9' }, 'smallest');
    assert.ok(!chosen.ok && chosen.reason === 'no-disk');
    assert.match(chosen.message, /none of the 2 disks matches: S1 /);
    assert.ok(!chooseDisk([], {}, 'only').ok);
  });

  it('M59 two disks with one serial are told apart by their WWN; without one they are refused', () => {
    const twins = [disk(), disk({ name: 'b', wwn: 'eui.0002' })];
    const chosen = chooseDisk(twins, { wwn: 'eui.0002' }, 'only');
    assert.ok(chosen.ok && chosen.choice.wwn === 'eui.0002');
    const nameless = chooseDisk([disk({ serial: '', wwn: '' })], {}, 'only');
    assert.ok(!nameless.ok && nameless.reason === 'nameless-disk');
    const copies = [disk({ wwn: '' }), disk({ name: 'b', wwn: '' })];
    assert.ok(!chooseDisk(copies, { serial: 'S1' }, 'only').ok);
    assert.ok(!chooseDisk(copies, {}, 'lowest-serial').ok);
  });

  it('a disk that can be pulled is meant only by its own number', () => {
    const stick = [disk({ removable: true, transport: 'usb', serial: 'STICK' })];
    assert.ok(!chooseDisk(stick, {}, 'only').ok);
    assert.ok(chooseDisk(stick, { serial: 'STICK' }, 'only').ok);
  });
});
