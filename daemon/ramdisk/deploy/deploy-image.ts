/**
 * deploy.image: an operating system from a URL onto one disk.
 *
 * Invariants, in this order
 *   1. Everything that can be refused is refused before the disk is touched: which disk, the secrets, the size, the partition table.
 *   2. What came is hashed as it came; the disk's first mebibyte is written only when that hash is the one of the command.
 *   3. What is on the disk is read again and hashed; only then is the partition table changed and the configuration put beside it.
 *   4. The evidence says both hashes and is signed by this ramdisk's key.
 *
 * Not idempotent: a second try is a second command, under its own approval.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../../domain/errors.ts';
import { selectDisk, showDisk } from '../../../domain/metal/select-disks.ts';
import { DeployEvidenceSchema, type DeployImage, DeployImageResultSchema, ImageFormat } from '../../../proto/index.ts';
import { type KindContext, type KindHandler, succeeded } from '../../kinds/handler.ts';
import { bindingOf } from '../../secrets/port.ts';
import type { DiskFacts } from '../disks/disk-host.ts';
import { diskMessage, wantedDisk } from '../disks/disk-message.ts';
import type { RamdiskPorts } from '../ports.ts';
import { assertCompression, decompressed } from './decompress.ts';
import { createDeployProgress, type DeployProgress } from './deploy-progress.ts';
import type { FatFiles } from './fat.ts';
import { changeGpt, encodeGpt, type Gpt, type GptPartition, parseGpt, protectiveMbr } from './gpt.ts';
import { type ImageSource, imageUrl, openImageSource, sourceTiming } from './image-source.ts';
import { assertScratchRoom, keepStream, rawOfQcow2 } from './qcow2.ts';
import { encodeSeed, seedBytes, seedFiles, seedLabel } from './seed.ts';
import { hashDisk, targetFull, type WrittenImage, writeImage } from './write-image.ts';

export function deployImageHandler(ports: RamdiskPorts): KindHandler {
  return {
    prepare: async (payload) => ({ disk: showDisk(await plan(ports, payload as DeployImage)) }),
    async run(payload, context) {
      const wanted = payload as DeployImage;
      const disk = await plan(ports, wanted);
      const files = await readSeedFiles(ports, { wanted, context });
      const work: DeployWork = { ports, wanted, context, disk, files, progress: createDeployProgress(context) };
      const { written, delivered } = await writeAll(work);
      const readback = await readBack(work, written);
      const grown = await layOut(work, written);
      await ports.disks.partitionsChanged(disk);
      return succeeded(DeployImageResultSchema, { evidence: await sign(work, { written, delivered, readback, grown }) });
    },
  };
}

interface DeployWork {
  readonly ports: RamdiskPorts;
  readonly wanted: DeployImage;
  readonly context: KindContext;
  readonly disk: DiskFacts;
  /** null: no configuration beside the image. */
  readonly files: FatFiles | null;
  readonly progress: DeployProgress;
}

async function plan({ disks }: RamdiskPorts, wanted: DeployImage): Promise<DiskFacts> {
  imageUrl(wanted.imageUrl);
  assertCompression(wanted.compression);
  if (!/^[0-9a-f]{64}$/.test(wanted.imageSha256))
    throw new ControlError('INVALID_INPUT', 'image_sha256 must be 64 lower-case hex digits', { details: { reason: 'image-sha256' } });
  if (wanted.format !== ImageFormat.RAW && wanted.format !== ImageFormat.QCOW2)
    throw new ControlError('INVALID_INPUT', `image format ${wanted.format} is neither raw nor qcow2`, {
      details: { reason: 'image-format' },
    });
  return selectDisk(await disks.list(), wantedDisk(wanted.target));
}

/** Asked for before anything is written: a system without its configuration is none. */
async function readSeedFiles(
  { secrets, boot }: RamdiskPorts,
  { wanted, context }: { wanted: DeployImage; context: KindContext },
): Promise<FatFiles | null> {
  const read = async (ref: string): Promise<Uint8Array | null> =>
    ref === '' ? null : secrets.read(ref, bindingOf(context.commandId), context.signal);
  const { metaData, networkConfig } = wanted;
  const userData = await read(wanted.userDataRef);
  return seedFiles({ nodeId: boot.nodeId, runId: boot.runId, userData, metaData, networkConfig, join: await read(wanted.joinRef) });
}

interface Delivered {
  readonly bytes: number;
  readonly sha256: Buffer;
}

async function writeAll(work: DeployWork): Promise<{ written: WrittenImage; delivered: Delivered }> {
  const { ports, wanted, context, disk, progress } = work;
  const source = await openImageSource({
    url: wanted.imageUrl,
    signal: context.signal,
    timing: ports.sourceTiming ?? sourceTiming,
    sleep: ports.sleep,
    onResume: progress.resumed,
  });
  try {
    const total = assertTotal(source, work);
    const write = wanted.format === ImageFormat.QCOW2 ? writeQcow2 : writeRaw;
    const end = await write(work, progress.counted(source.bytes, total));
    context.signal.throwIfAborted();
    await writeHead(work, end.written);
    return end;
  } finally {
    await source.bytes.return();
    progress.note(`written to ${disk.name}`);
  }
}

/** What the server says, what the command says and what the disk holds must fit before a byte is written. */
function assertTotal({ totalBytes }: ImageSource, { wanted, disk }: DeployWork): number {
  const promised = Number(wanted.imageBytes);
  if (promised !== 0 && totalBytes !== null && totalBytes !== promised)
    throw new ControlError('DATA_CORRUPT', `the image should have ${promised} bytes, the server offers ${totalBytes}`, {
      details: { reason: 'image-size' },
    });
  const total = totalBytes ?? promised;
  if (wanted.format === ImageFormat.RAW && wanted.compression === 'none' && total > disk.sizeBytes)
    throw targetFull(`${total} bytes, the disk ${disk.sizeBytes}`);
  return total;
}

async function writeRaw(work: DeployWork, source: AsyncIterable<Buffer>) {
  const { wanted, context } = work;
  if (wanted.compression === 'none') {
    // As it comes is as it is written: hashed once.
    const written = await writeFrom(work, source);
    const delivered = { bytes: written.bytes, sha256: written.sha256 };
    assertChecksum(delivered, wanted);
    return { written, delivered };
  }
  const hash = createHash('sha256');
  let bytes = 0;
  const hashed = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      hash.update(chunk);
      bytes += chunk.length;
      yield chunk;
    }
  };
  const written = await writeFrom(work, decompressed(wanted.compression, hashed(), context.signal));
  const delivered = { bytes, sha256: hash.digest() };
  assertChecksum(delivered, wanted);
  return { written, delivered };
}

async function writeQcow2(work: DeployWork, source: AsyncIterable<Buffer>) {
  const { ports, wanted, context, disk } = work;
  const { scratch } = ports;
  await assertScratchRoom(scratch, Number(wanted.imageBytes));
  const [kept, path] = [join(scratch, 'image.delivered'), join(scratch, 'image.qcow2')];
  try {
    const delivered = await keepStream(kept, source);
    assertChecksum(delivered, wanted);
    // Verified: from here on it may be given to programs.
    await keepStream(path, decompressed(wanted.compression, createReadStream(kept, { signal: context.signal }), context.signal));
    await rm(kept, { force: true });
    const raw = await rawOfQcow2(path, { diskBytes: disk.sizeBytes, scratch, signal: context.signal });
    return { written: await writeFrom(work, raw.bytes()), delivered };
  } finally {
    for (const one of [kept, path, join(scratch, 'image.raw')]) await rm(one, { force: true });
  }
}

function assertChecksum({ sha256, bytes }: Delivered, { imageSha256 }: DeployImage): void {
  const came = sha256.toString('hex');
  if (came === imageSha256) return;
  throw new ControlError(
    'DATA_CORRUPT',
    `the image has SHA-256 ${came} over ${bytes} bytes, the command names ${imageSha256}: nothing on the disk boots`,
    {
      details: { reason: 'image-checksum' },
    },
  );
}

async function writeFrom(work: DeployWork, source: AsyncIterable<Uint8Array>): Promise<WrittenImage> {
  const { ports, context, disk } = work;
  const handle = await ports.disks.open(disk, 'write');
  try {
    return await writeImage(source, {
      handle,
      diskBytes: disk.sizeBytes,
      signal: context.signal,
      onHead: (head) => void layoutOf(work, head),
    });
  } finally {
    await handle.close();
  }
}

async function writeHead({ ports, disk }: DeployWork, { head }: WrittenImage): Promise<void> {
  const handle = await ports.disks.open(disk, 'write');
  try {
    await handle.write(0, head);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Opened anew, so that it comes from the disk. @throws DATA_CORRUPT `image-readback` when the disk holds something else than was written */
async function readBack({ ports, disk, context, progress }: DeployWork, { bytes, sha256 }: WrittenImage): Promise<Buffer> {
  progress.note(`reading ${bytes} bytes back`);
  const handle = await ports.disks.open(disk, 'read');
  try {
    const readback = await hashDisk(handle, bytes, context.signal);
    if (readback.equals(sha256)) return readback;
    throw new ControlError(
      'DATA_CORRUPT',
      `the disk does not hold what was written: ${readback.toString('hex')} is read, ${sha256.toString('hex')} was written`,
      {
        details: { reason: 'image-readback' },
      },
    );
  } finally {
    await handle.close();
  }
}

interface Layout {
  readonly gpt: Gpt;
  readonly seed: GptPartition | null;
}

/** null: the image's own table stays as it is. */
function layoutOf({ ports, wanted, disk, files }: DeployWork, head: Buffer): Layout | null {
  if (wanted.growPartition === 0 && files === null) return null;
  const { logicalBlockBytes: blockBytes, sizeBytes: diskBytes } = disk;
  const append = files === null ? null : { bytes: seedBytes(blockBytes), name: seedLabel, guid: ports.random(16) };
  const { gpt, appended } = changeGpt(parseGpt(head, blockBytes), { diskBytes, grow: wanted.growPartition, append });
  return { gpt, seed: appended };
}

/** The second copy of the table before the first: a cut in between leaves the image's own. @returns the partition that grew; 0: none */
async function layOut(work: DeployWork, { head }: WrittenImage): Promise<number> {
  const { ports, disk, files, wanted } = work;
  const layout = layoutOf(work, head);
  if (layout === null) return 0;
  const { logicalBlockBytes: blockBytes, sizeBytes: diskBytes } = disk;
  const { primary, backup } = encodeGpt(layout.gpt, diskBytes);
  const handle = await ports.disks.open(disk, 'write');
  try {
    if (layout.seed !== null && files !== null)
      await handle.write(layout.seed.first * blockBytes, encodeSeed(files, blockBytes, Buffer.from(ports.random(4)).readUInt32LE()));
    await handle.write(backup.offset, backup.bytes);
    await handle.sync();
    await handle.write(0, Buffer.concat([protectiveMbr(head.subarray(0, blockBytes), { diskBytes, blockBytes }), primary]));
    await handle.sync();
  } finally {
    await handle.close();
  }
  return wanted.growPartition;
}

async function sign(
  { ports, wanted, context, disk, files }: DeployWork,
  { written, delivered, readback, grown }: { written: WrittenImage; delivered: Delivered; readback: Buffer; grown: number },
) {
  const by = ports.signer();
  const body = create(DeployEvidenceSchema, {
    trustDomain: by.trustDomain,
    nodeId: by.nodeId,
    runId: wanted.runId,
    commandId: context.commandId,
    bootNonce: ports.boot.bootNonce,
    disk: diskMessage(disk),
    imageUrl: wanted.imageUrl,
    imageSha256: delivered.sha256.toString('hex'),
    imageBytes: BigInt(delivered.bytes),
    writtenBytes: BigInt(written.bytes),
    writtenSha256: written.sha256,
    readbackSha256: readback,
    grownPartition: grown,
    seeded: files !== null,
    finishedAtMs: BigInt(Math.max(0, Math.round(context.now()))),
  });
  return by.sign('deploy-evidence', toBinary(DeployEvidenceSchema, body));
}
