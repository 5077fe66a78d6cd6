import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import zlib, { gzipSync } from 'node:zlib';
import { runProgram } from '../../daemon/kinds/program.ts';
import { encodeGpt, parseGpt } from '../../daemon/ramdisk/deploy/gpt.ts';
import { readSeed } from '../../daemon/ramdisk/deploy/seed.ts';
import type { DiskHost } from '../../daemon/ramdisk/disks/disk-host.ts';
import { codeOf, isControlError } from '../../domain/errors.ts';
import { sha256 } from '../harness/deployment.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { type ImageServer, type ImageServerScript, startImageServer } from './image-server.ts';
import { deployEvidenceOf, hasProgram, mebibyte, type RamdiskStage, stageRamdisk } from './stage.ts';

const hex = (bytes: Uint8Array): string => sha256(bytes).toString('hex');
const quick = { stallMs: 300, tries: 3, retryAfterMs: 0 };

/** An image with a table and one partition from 1 MiB to its end. */
function imageOf(bytes: number, blockBytes = 512): Buffer {
  const image = randomBytes(bytes);
  const alignment = mebibyte / blockBytes;
  const partition = {
    number: 1,
    typeGuid: randomBytes(16),
    guid: randomBytes(16),
    first: alignment,
    last: (bytes / mebibyte - 1) * alignment - 1,
    attributes: 0n,
    name: 'root',
  };
  const gpt = {
    blockBytes,
    diskGuid: randomBytes(16),
    firstUsable: alignment,
    lastUsable: partition.last,
    entryCount: 128,
    entryBytes: 128,
    partitions: [partition],
  };
  const { primary, backup } = encodeGpt(gpt, bytes);
  image.fill(0, 0, 512);
  image.set([0xee], 450);
  image.writeUInt32LE(1, 454);
  image.set([0x55, 0xaa], 510);
  image.set(primary, blockBytes);
  image.set(backup.bytes, backup.offset);
  return image;
}

describe('deploy.image', () => {
  let stage: RamdiskStage;
  let server: ImageServer | undefined;
  const image = imageOf(6 * mebibyte);
  beforeEach(async () => {
    stage = await stageRamdisk({ sourceTiming: quick });
    stage.disk('vda', { serial: 'A', content: Buffer.alloc(20 * mebibyte, 0x5a) });
  });
  afterEach(() => server?.close());
  after(removeScratchFolders);

  /** Offers `bytes` and deploys them. */
  async function deploy(bytes: Uint8Array, over: Record<string, unknown> = {}, script: ImageServerScript = {}) {
    server = await startImageServer(bytes, script);
    return stage.run('deploy.image', {
      target: { serial: 'A' },
      imageUrl: server.url,
      imageSha256: hex(bytes),
      format: 1,
      compression: 'none',
      ...over,
    });
  }
  async function refused(...asked: Parameters<typeof deploy>): Promise<string> {
    const error: unknown = await deploy(...asked).then(
      () => assert.fail('it was not refused'),
      (thrown: unknown) => thrown,
    );
    return `${codeOf(error)} ${isControlError(error) ? String(error.details['reason']) : ''}: ${(error as Error).message}`;
  }
  const isUntouched = (): boolean => stage.content('vda').every((byte) => byte === 0x5a);
  /** No partition table, no boot code: no firmware starts it. */
  const isHeadless = (): boolean =>
    stage
      .content('vda')
      .subarray(0, mebibyte)
      .every((byte) => byte === 0);

  it('KIND-002 writes an image, reads it back and signs both hashes', async () => {
    const evidence = deployEvidenceOf(stage, await deploy(image));
    assert.ok(stage.content('vda').subarray(0, image.length).equals(image));
    assert.deepEqual(
      [evidence.imageSha256, Buffer.from(evidence.writtenSha256).toString('hex'), Buffer.from(evidence.readbackSha256).toString('hex')],
      [hex(image), hex(image), hex(image)],
    );
    assert.deepEqual(
      [evidence.imageBytes, evidence.writtenBytes, evidence.disk?.serial, evidence.seeded],
      [BigInt(image.length), BigInt(image.length), 'A', false],
    );
  });

  for (const [name, compress] of [
    ['gzip', (bytes: Buffer) => gzipSync(bytes)],
    ['zstd', (bytes: Buffer) => execFileSync('zstd', ['--stdout', '--quiet', '-'], { input: bytes, maxBuffer: 64 * mebibyte })],
  ] as const) {
    it(`writes a ${name} image; the checksum is that of the bytes as they are delivered${name === 'zstd' ? ' (skipped where zstd is absent)' : ''}`, async function () {
      if (name === 'zstd' && !hasProgram('zstd')) this.skip();
      const packed = compress(image);
      const evidence = deployEvidenceOf(stage, await deploy(packed, { compression: name }));
      assert.deepEqual([evidence.imageSha256, evidence.writtenBytes], [hex(packed), BigInt(image.length)]);
      assert.ok(stage.content('vda').subarray(0, image.length).equals(image));
      await server?.close();
      assert.match(
        await refused(packed.subarray(0, packed.length - 9), { compression: name }),
        new RegExp(`^DATA_CORRUPT image-corrupt: the image is not ${name}, or it is cut`),
      );
      assert.ok(isHeadless());
    });
  }

  it('a ramdisk without the program for an image, or for the jump, says which one and what to do instead', async () => {
    const path = process.env['PATH'];
    process.env['PATH'] = scratchFolder();
    try {
      if (!('createZstdDecompress' in zlib))
        assert.match(
          await refused(image, { compression: 'zstd' }),
          /^UNSUPPORTED no-program: this machine has no zstd: offer the image as gzip or uncompressed, or build the ramdisk where zstd is /,
        );
      await server?.close();
      assert.match(
        await refused(image, { format: 2 }),
        /^UNSUPPORTED no-program: this machine has no qemu-img: offer the image as raw, or build the ramdisk where qemu-img is /,
      );
      assert.ok(isUntouched() || isHeadless(), 'and no half of an image is left to start');
      await assert.rejects(runProgram('kexec', ['-e'], new AbortController().signal), {
        code: 'UNSUPPORTED',
        message: /^this machine has no kexec: have the profile start it by: reboot, or /,
      });
      await assert.rejects(runProgram('of-nobody', [], new AbortController().signal), { message: 'this machine has no of-nobody' });
    } finally {
      process.env['PATH'] = path;
    }
  });

  it('writes a qcow2 image by qemu-img, and refuses one that leans on another file (skipped where qemu-img is absent)', async function () {
    if (!hasProgram('qemu-img')) this.skip();
    const folder = scratchFolder();
    const [raw, packed, leaning] = [join(folder, 'raw'), join(folder, 'qcow2'), join(folder, 'leaning')] as const;
    writeFileSync(raw, image);
    execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', raw, packed]);
    const evidence = deployEvidenceOf(stage, await deploy(readFileSync(packed), { format: 2 }));
    assert.deepEqual([Buffer.from(evidence.writtenSha256).toString('hex'), evidence.writtenBytes], [hex(image), BigInt(image.length)]);
    assert.ok(stage.content('vda').subarray(0, image.length).equals(image));
    assert.deepEqual(readdirSync(stage.ports.scratch), [], 'nothing of it stays in memory');
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', '/etc/passwd', leaning]);
    await server?.close();
    assert.match(await refused(readFileSync(leaning), { format: 2 }), /^UNSUPPORTED qcow2-backing/);
  });

  it('takes a download up again where it was cut at 90 %, by Range, and at the start of a server that knows none', async () => {
    const at = Math.floor(image.length * 0.9);
    deployEvidenceOf(stage, await deploy(image, {}, { cutAfter: [at] }));
    assert.equal(server?.ranges.length, 2);
    assert.match(server?.ranges[1] ?? '', /^bytes=[1-9]\d+-$/);
    assert.ok(stage.content('vda').subarray(0, image.length).equals(image));
    assert.ok(stage.progress.some(({ note }) => /taking up again at byte \d+/.test(note)));
    await server?.close();
    deployEvidenceOf(stage, await deploy(image, {}, { cutAfter: [at], ignoresRange: true }));
    assert.ok(stage.content('vda').subarray(0, image.length).equals(image));
  });

  it('leaves a server that stalls and asks again; one that brings nothing more is given up', async () => {
    deployEvidenceOf(stage, await deploy(image, {}, { stallAfter: [mebibyte] }));
    assert.ok(stage.content('vda').subarray(0, image.length).equals(image));
    await server?.close();
    assert.match(
      await refused(image, {}, { stallAfter: [5 * mebibyte, 0, 0, 0] }),
      /^UNAVAILABLE image-stalled: the image server sent nothing for 0.3 s/,
    );
    assert.ok(isHeadless());
  });

  it('refuses an image with another checksum, and leaves nothing that boots', async () => {
    assert.match(
      await refused(image, { imageSha256: 'ab'.repeat(32) }),
      /^DATA_CORRUPT image-checksum: the image has SHA-256 [0-9a-f]{64} over 6291456 bytes, the command names (ab){32}/,
    );
    assert.ok(isHeadless());
  });

  it('refuses an image that does not fit before anything is written, whoever tells its size', async () => {
    const large = imageOf(24 * mebibyte);
    assert.match(await refused(large), /^INVALID_STATE target-full: the image does not fit: it has 25165824 bytes, the disk 20971520/);
    await server?.close();
    assert.match(await refused(large, { imageBytes: BigInt(large.length) }, { chunked: true }), /^INVALID_STATE target-full/);
    await server?.close();
    assert.match(
      await refused(image, { imageBytes: 5n }),
      /^DATA_CORRUPT image-size: the image should have 5 bytes, the server offers 6291456/,
    );
    assert.ok(isUntouched());
    await server?.close();
    assert.match(await refused(large, {}, { chunked: true }), /^INVALID_STATE target-full: .*more than the 20971520 bytes/);
    assert.ok(isHeadless(), 'found out while it came: not bootable');
  });

  it('retries what may pass, and ends at once at what may not', async () => {
    deployEvidenceOf(stage, await deploy(image, {}, { statuses: [503] }));
    assert.equal(server?.ranges.length, 2);
    await server?.close();
    assert.match(await refused(image, {}, { statuses: [404] }), /^NOT_FOUND image-server: 127.0.0.1:\d+ answered 404 for \/image/);
    assert.equal(server?.ranges.length, 1);
    await server?.close();
    deployEvidenceOf(stage, await deploy(image, {}, { redirectTo: '/elsewhere' }));
    await server?.close();
    assert.match(await refused(image, {}, { redirectTo: '/image' }), /redirects more than 5 times/);
    await server?.close();
    assert.match(await refused(image, { imageUrl: 'ftp://x/' }), /^INVALID_INPUT image-url/);
  });

  it('believes the disk, not the writes: what reads back otherwise is no deployment', async () => {
    const { disks } = stage.ports;
    const forgetful: DiskHost = {
      ...disks,
      open: async (disk, mode) => {
        const handle = await disks.open(disk, mode);
        return { ...handle, write: async (offset, bytes) => (offset === 4 * mebibyte ? undefined : handle.write(offset, bytes)) };
      },
    };
    const folder = stage.folder;
    stage = await stageRamdisk({ disks: forgetful, sourceTiming: quick });
    assert.match(await refused(image), /^DATA_CORRUPT image-readback: the disk does not hold what was written/);
    assert.notEqual(stage.folder, folder);
  });

  it('SEC-024 grows a partition over a larger disk and puts the configuration behind it, with the secrets the command names', async () => {
    const secrets: Record<string, string> = { 'secret://user': '#cloud-config\nhostname: x\n', 'secret://join': 'bcjoin1.abc' };
    const asked: unknown[] = [];
    stage = await stageRamdisk({
      sourceTiming: quick,
      secrets: {
        read: async (ref, { workflowId, stepId }) => {
          asked.push([ref, workflowId, stepId]);
          return Buffer.from(secrets[ref] ?? '');
        },
      },
    });
    stage.disk('vda', { serial: 'A', content: Buffer.alloc(20 * mebibyte, 0x5a) });
    const over = {
      growPartition: 1,
      userDataRef: 'secret://user',
      joinRef: 'secret://join',
      metaData: '{"instance-id":"i-1"}',
      networkConfig: 'version: 2\n',
    };
    const evidence = deployEvidenceOf(stage, await deploy(image, over));
    assert.deepEqual([evidence.grownPartition, evidence.seeded], [1, true]);
    assert.deepEqual(asked, [
      ['secret://user', 'machine/node-1/provision/a1b2c3d4e5f6', 'step.1'],
      ['secret://join', 'machine/node-1/provision/a1b2c3d4e5f6', 'step.1'],
    ]);
    const [disk] = await stage.ports.disks.list();
    const handle = await stage.ports.disks.open(disk as never, 'read');
    const { partitions } = parseGpt(await handle.read(0, mebibyte), 512);
    const files = await readSeed(handle, 512);
    await handle.close();
    const [root, seed] = partitions;
    assert.deepEqual([root?.first, (root?.last ?? 0) + 1, seed?.name], [2048, seed?.first, 'CIDATA']);
    assert.ok((seed?.last ?? 0) < (20 * mebibyte) / 512 - 33);
    const text = (name: string): string => Buffer.from(files[name] ?? '').toString('utf8');
    assert.deepEqual(Object.keys(files).sort(), ['bc-join', 'meta-data', 'network-config', 'user-data', 'vendor-data']);
    assert.deepEqual(
      [text('user-data'), text('bc-join'), text('meta-data')],
      [secrets['secret://user'], 'bcjoin1.abc', '{"instance-id":"i-1"}'],
    );
    assert.match(text('vendor-data'), /^#cloud-config\n\{"write_files":.*"bcd","join","--node-id","[a-z0-9-]+"/);
  });

  it('asks for the secrets first: without them nothing is written', async () => {
    await assert.rejects(deploy(image, { joinRef: 'secret://join' }), /no secret secret:\/\/join/);
    assert.ok(isUntouched());
  });

  it('makes a table and a file system that programs of others read (skipped where sgdisk, fsck.vfat or mtype is absent)', async function () {
    const programs = ['sgdisk', 'fsck.vfat', 'mtype'];
    if (!programs.every(hasProgram)) this.skip();
    for (const blockBytes of [512, 4096]) {
      const size = (blockBytes === 512 ? 20 : 64) * mebibyte;
      stage.disk('vda', { serial: 'A', logicalBlockBytes: blockBytes, content: Buffer.alloc(size) });
      deployEvidenceOf(
        stage,
        await deploy(imageOf(6 * mebibyte, blockBytes), { growPartition: 1, metaData: '{"a":1}', networkConfig: 'n: 1\n'.repeat(2000) }),
      );
      await server?.close();
      const path = join(stage.folder, 'vda.img');
      // sgdisk knows files with blocks of 512 bytes alone.
      if (blockBytes === 512) assert.match(execFileSync('sgdisk', ['--verify', path], { encoding: 'utf8' }), /No problems found/);
      const { partitions } = parseGpt(stage.content('vda').subarray(0, mebibyte), blockBytes);
      const seed = join(mkdtempSync(join(scratchFolder(), 'seed-')), 'fat');
      const { first = 0, last = 0 } = partitions[1] ?? {};
      writeFileSync(seed, stage.content('vda').subarray(first * blockBytes, (last + 1) * blockBytes));
      execFileSync('fsck.vfat', ['-n', seed], { stdio: 'pipe' });
      assert.equal(execFileSync('mtype', ['-i', seed, '::meta-data'], { encoding: 'utf8' }), '{"a":1}');
      assert.equal(execFileSync('mtype', ['-i', seed, '::network-config'], { encoding: 'utf8' }), 'n: 1\n'.repeat(2000));
    }
  });

  it('refuses a table that is not there, is damaged, or has no room, before anything is written', async () => {
    const over = { growPartition: 1 };
    assert.match(await refused(randomBytes(2 * mebibyte), over), /^UNSUPPORTED partition-table: .*it is not GPT/);
    await server?.close();
    const damaged = Buffer.from(image);
    damaged.set([1], 1024 + 40);
    assert.match(await refused(damaged, over), /^UNSUPPORTED partition-table: .*checksum of its partitions/);
    await server?.close();
    assert.match(
      await refused(imageOf(6 * mebibyte, 4096), over),
      /^UNSUPPORTED partition-table: .*made for blocks of 4096 bytes, the disk has 512/,
    );
    await server?.close();
    assert.match(await refused(image, { growPartition: 3 }), /^UNSUPPORTED partition-table: .*no partition 3 to grow/);
    await server?.close();
    assert.match(
      await refused(imageOf(20 * mebibyte), { metaData: '{}' }),
      /^INVALID_STATE target-full: .*no room for \d+ bytes of configuration/,
    );
    await server?.close();
    assert.match(await refused(image, { metaData: '[]' }), /^INVALID_INPUT meta-data/);
    assert.ok(isUntouched());
  });
});
