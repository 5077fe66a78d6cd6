import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { isControlError } from '../../domain/errors.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { type DiskInit, eraseEvidenceOf, mebibyte, type RamdiskStage, shuffleNames, stageRamdisk } from './stage.ts';

const nvme: DiskInit = { transport: 'nvme', can: ['nvmeFormat', 'nvmeCryptoErase'] };
const bySerial = (serial: string) => ({ serial });

/** Code, reason and words of what it throws. */
async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => assert.fail('it was not refused'),
    (thrown: unknown) => thrown,
  );
  assert.ok(isControlError(error), String(error));
  return `${error.code} ${String(error.details['reason'])}: ${error.message}`;
}

describe('disk.wipe', () => {
  let stage: RamdiskStage;
  beforeEach(async () => {
    stage = await stageRamdisk();
  });
  after(removeScratchFolders);

  const isBlank = (name: string): boolean => stage.content(name).every((byte) => byte === 0);

  it('KIND-002 erases every disk by the best way its drive offers and signs what it read before and after', async () => {
    stage.disk('nvme0n1', { ...nvme, serial: 'A', wwn: 'eui.a' });
    stage.disk('sda', { serial: 'B', transport: 'sata', can: ['ataSecureErase'] });
    stage.disk('vda', { serial: 'C', transport: 'virtio' });
    const end = await stage.run('disk.wipe', { samples: 8 });
    assert.equal(end.kind, 'succeeded');
    const evidence = eraseEvidenceOf(stage, end);
    assert.deepEqual(
      evidence.disks.map(({ disk, method, passes, erased }) => [disk?.serial, method, passes, erased]),
      [
        ['A', 'nvme-format-ses2', 0, true],
        ['B', 'ata-secure-erase', 0, true],
        ['C', 'overwrite-random-zero', 2, true],
      ],
    );
    assert.deepEqual([evidence.runId, evidence.systemUuid, evidence.nodeId], ['a1b2c3d4e5f6', 'uuid-1', 'node-1']);
    for (const { samples } of evidence.disks) {
      assert.ok(
        samples.length >= 8 &&
          samples.every(({ clean, beforeSha256, afterSha256 }) => clean && !Buffer.from(beforeSha256).equals(afterSha256)),
      );
      assert.deepEqual([samples[0]?.offset, samples.at(-1)?.offset], [0n, BigInt(mebibyte - 4096)], 'the ends of the disk are always read');
    }
    assert.ok(['nvme0n1', 'sda', 'vda'].every(isBlank));
  });

  it('M46 finds a disk by serial and WWN when the names were shuffled since the plan', async () => {
    stage.disk('sda', { serial: 'KEEP', wwn: 'naa.1' });
    stage.disk('sdb', { serial: 'WIPE', wwn: 'naa.2' });
    shuffleNames(stage.folder, { sda: 'sdb', sdb: 'sda' });
    const end = await stage.run('disk.wipe', { targets: [{ serial: 'WIPE', wwn: 'NAA.2' }] });
    assert.equal(end.kind, 'succeeded');
    assert.ok(isBlank('sda') && !isBlank('sdb'));
  });

  it('M46 refuses two disks with one serial, and tells them apart by WWN', async () => {
    stage.disk('sda', { serial: 'TWIN', wwn: 'naa.1' });
    stage.disk('sdb', { serial: 'TWIN', wwn: 'naa.2' });
    assert.match(
      await refusal(stage.run('disk.wipe', { targets: [bySerial('TWIN')] })),
      /^INVALID_STATE ambiguous-disk: 2 disks have serial "TWIN"/,
    );
    assert.ok(!isBlank('sda') && !isBlank('sdb'), 'nothing was written');
    assert.equal((await stage.run('disk.wipe', { targets: [{ serial: 'TWIN', wwn: 'naa.2' }] })).kind, 'succeeded');
    assert.ok(!isBlank('sda') && isBlank('sdb'));
  });

  it('M47 refuses when no disk matches, a disk without a serial included, and never takes another', async () => {
    stage.disk('sda', { serial: '', model: 'Nameless' });
    assert.match(
      await refusal(stage.run('disk.wipe', { targets: [bySerial('GONE')] })),
      /^NOT_FOUND no-such-disk: no disk has serial "GONE": this machine has sda \(serial none/,
    );
    assert.match(await refusal(stage.run('disk.wipe', { targets: [{}] })), /^INVALID_INPUT empty-selector/);
    assert.match(
      await refusal(stage.run('disk.wipe', { targets: [{ model: 'Nameless', sizeBytes: 5n }] })),
      /^NOT_FOUND no-such-disk: no disk has 5 bytes and model "Nameless"/,
    );
    assert.ok(!isBlank('sda'));
    assert.equal((await stage.run('disk.wipe', { targets: [{ model: 'Nameless', sizeBytes: BigInt(mebibyte) }] })).kind, 'succeeded');
  });

  it('M53 covers every disk but those on the keep-list, and refuses a keep-list that fits none', async () => {
    stage.disk('sda', { serial: 'A' });
    stage.disk('sdb', { serial: 'B' });
    stage.disk('sdc', { serial: 'C' });
    assert.match(
      await refusal(stage.run('disk.wipe', { keep: [bySerial('B '), bySerial('TYPO')] })),
      /^NOT_FOUND no-such-disk: no disk has serial "TYPO"/,
    );
    assert.match(
      await refusal(stage.run('disk.wipe', { targets: [bySerial('B')], keep: [bySerial('B')] })),
      /^INVALID_INPUT contradicting-selectors/,
    );
    const end = await stage.run('disk.wipe', { keep: [bySerial('B')] });
    assert.deepEqual([isBlank('sda'), isBlank('sdb'), isBlank('sdc')], [true, false, true]);
    const { disks, kept } = eraseEvidenceOf(stage, end);
    assert.deepEqual([disks.map(({ disk }) => disk?.serial), kept.map(({ serial }) => serial)], [['A', 'C'], ['B']]);
  });

  it('M50 believes the exit status of the tool: one that fails is not a wipe, and the next way is taken', async () => {
    stage.disk('nvme0n1', { ...nvme, serial: 'A', tools: { nvme: { exit: 1, says: 'NVMe status: INTERNAL(0x6)', erases: true } } });
    const [disk] = eraseEvidenceOf(stage, await stage.run('disk.wipe', {})).disks;
    assert.deepEqual([disk?.method, disk?.erased], ['overwrite-random-zero', true]);
    assert.match(
      disk?.detail ?? '',
      /nvme-format-ses2: nvme ended with status 1: NVMe status: INTERNAL\(0x6\); nvme-format-ses1: nvme ended/,
    );
  });

  it('M50 convicts a tool that ends well and erased nothing, on a disk full of data and on an empty one', async () => {
    const lying = { ...nvme, tools: { nvme: { exit: 0, erases: false } } };
    stage.disk('nvme0n1', { ...lying, serial: 'FULL' });
    stage.disk('nvme1n1', { ...lying, serial: 'EMPTY', content: Buffer.alloc(mebibyte) });
    const end = await stage.run('disk.wipe', { methods: ['nvme-format-ses2'] });
    assert.equal(end.kind === 'failed' && end.code, 'NOT_ERASED');
    const { disks } = eraseEvidenceOf(stage, end);
    assert.deepEqual(
      disks.map(({ erased, method }) => [erased, method]),
      [
        [false, ''],
        [false, ''],
      ],
    );
    for (const { detail } of disks)
      assert.match(detail, /nvme-format-ses2: it claimed success, and 6\d of 6\d samples are not erased, the first at byte 0/);
  });

  it('M51 reads what the drive can do first: ses2 where it may, ses1 else, and a format without an erase setting is no way', async () => {
    stage.disk('nvme0n1', { serial: 'A', transport: 'nvme', can: ['nvmeFormat'] });
    stage.disk('nvme1n1', { serial: 'B', transport: 'nvme' });
    const { disks } = eraseEvidenceOf(stage, await stage.run('disk.wipe', {}));
    assert.deepEqual(
      disks.map(({ method, detail }) => [method, detail]),
      [
        ['nvme-format-ses1', ''],
        ['overwrite-random-zero', ''],
      ],
    );
    assert.match(
      await refusal(stage.run('disk.wipe', { methods: ['nvme-format-ses0'] })),
      /^INVALID_INPUT erase-method: no way to erase a disk: nvme-format-ses0/,
    );
    assert.match(await refusal(stage.run('disk.wipe', { methods: ['nvme-format-ses2'] })), /^UNSUPPORTED no-erase-method/);
  });

  it('M51 M49 one dead drive fails the wipe of the machine, whatever became of the others', async () => {
    stage.disk('sda', { serial: 'GOOD' });
    stage.disk('sdb', { serial: 'DEAD', dead: true });
    const end = await stage.run('disk.wipe', {});
    assert.ok(end.kind === 'failed' && end.code === 'NOT_ERASED', JSON.stringify(end.kind));
    assert.match(
      end.message,
      /^1 of 2 disks were not erased: sdb \(serial DEAD\): not erased: overwrite-random-zero: .*input\/output error/,
    );
    const { disks } = eraseEvidenceOf(stage, end);
    assert.deepEqual(
      disks.map(({ disk, erased }) => [disk?.serial, erased]),
      [
        ['GOOD', true],
        ['DEAD', false],
      ],
    );
  });

  it('says how far it is in bytes over all passes, and ends at once when it is cancelled', async () => {
    stage.disk('vda', { serial: 'A', content: randomBytes(9 * mebibyte) });
    let now = 0;
    await stage.run('disk.wipe', {}, { now: () => (now += 3000) });
    const total = 18 * mebibyte;
    assert.deepEqual(
      stage.progress.map(({ done }) => done / mebibyte),
      [4, 8, 9, 13, 17, 18, 18],
    );
    assert.ok(stage.progress.every((one) => one.total === total));
    assert.match(stage.progress[0]?.note ?? '', /^vda: overwrite-random-zero; 0 of 1 disks done$/);
    stage.disk('vda', { serial: 'A', content: randomBytes(9 * mebibyte) });
    const abort = new AbortController();
    const stopped = stage.run(
      'disk.wipe',
      {},
      { signal: abort.signal, now: () => (now += 3000), progress: () => abort.abort(new Error('cancelled')) },
    );
    await assert.rejects(stopped, /cancelled/);
    assert.ok(
      !stage
        .content('vda')
        .subarray(5 * mebibyte)
        .every((byte) => byte === 0),
    );
  });
});
