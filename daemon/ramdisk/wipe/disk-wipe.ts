/**
 * disk.wipe: every chosen disk erased and read back, or the command has failed.
 *
 * Invariants
 *   - What is erased is chosen by what the disks say of themselves, before anything is written; any doubt refuses all of it (M46, M47).
 *   - One disk that was not erased makes the whole command fail, however many were (M49, M51): a dead drive is a dirty machine.
 *   - The evidence is signed either way and says of each disk what was tried; a failed one goes with the failure.
 *   - Nothing here runs it a second time: it is not idempotent, so after a crash the executor says interrupted.
 *
 * What it does not prove: that a drive's firmware tells the truth about blocks it no longer shows (docs/threat-model.md).
 */
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { eraseLadder } from '../../../domain/metal/erase.ts';
import { planWipe, showDisk, type WipePlan } from '../../../domain/metal/select-disks.ts';
import { type DiskWipe, DiskWipeResultSchema, EraseEvidenceSchema } from '../../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from '../../kinds/handler.ts';
import type { DiskFacts } from '../disks/disk-host.ts';
import { diskMessage, wantedDisk } from '../disks/disk-message.ts';
import type { RamdiskPorts } from '../ports.ts';
import { type ErasedDisk, eraseDisk } from './erase-disk.ts';
import { sampleBounds } from './samples.ts';
import { createWipeProgress } from './wipe-progress.ts';

/** All samples of one command, so that its evidence fits into an answer. */
const samplesInAll = 6000;

export function diskWipeHandler(ports: RamdiskPorts): KindHandler {
  return {
    // Refused before it is noted as started: nothing was done.
    prepare: async (payload) => ({ disks: (await plan(ports, payload as DiskWipe)).targets.map(showDisk).join('; ') }),
    async run(payload, context) {
      const wanted = payload as DiskWipe;
      const { targets, kept } = await plan(ports, wanted);
      const erased = await eraseAll(ports, { wanted, targets, context });
      const evidence = await sign(ports, { wanted, erased, kept, context });
      return endOf(erased, evidence);
    },
  };
}

async function plan({ disks }: RamdiskPorts, { targets, keep, methods }: DiskWipe): Promise<WipePlan<DiskFacts>> {
  const planned = planWipe(await disks.list(), { targets: targets.map(wantedDisk), keep: keep.map(wantedDisk) });
  const signal = AbortSignal.timeout(120_000);
  for (const disk of planned.targets) eraseLadder(await disks.capabilities(disk, signal), methods);
  return planned;
}

interface WipeWork {
  readonly wanted: DiskWipe;
  readonly targets: readonly DiskFacts[];
  readonly context: KindContext;
}

/** All at once: each disk has its own path to its data, and a slow one must not hold up the others. */
function eraseAll(ports: RamdiskPorts, { wanted, targets, context }: WipeWork): Promise<ErasedDisk[]> {
  const progress = createWipeProgress(targets, context);
  const samples = Math.min(
    wanted.samples === 0 ? sampleBounds.default : wanted.samples,
    sampleBounds.max,
    Math.max(1, Math.floor(samplesInAll / targets.length)),
  );
  return Promise.all(
    targets.map(async (disk) => {
      const end = await eraseDisk(disk, {
        disks: ports.disks,
        random: ports.random,
        now: context.now,
        signal: context.signal,
        allowed: wanted.methods,
        samples,
        onBytes: (done, method) => progress.bytes(disk, { done, method }),
      });
      progress.ended(disk);
      return end;
    }),
  );
}

async function sign(
  { signer, boot, machine }: RamdiskPorts,
  { wanted, erased, kept, context }: { wanted: DiskWipe; erased: readonly ErasedDisk[]; kept: readonly DiskFacts[]; context: KindContext },
): Promise<MessageInitShape<typeof DiskWipeResultSchema>> {
  const by = signer();
  const body = create(EraseEvidenceSchema, {
    trustDomain: by.trustDomain,
    nodeId: by.nodeId,
    runId: wanted.runId,
    commandId: context.commandId,
    bootNonce: boot.bootNonce,
    systemUuid: (await machine()).systemUuid,
    disks: [...erased],
    kept: kept.map(diskMessage),
    finishedAtMs: BigInt(Math.max(0, Math.round(context.now()))),
  });
  return { evidence: await by.sign('erase-evidence', toBinary(EraseEvidenceSchema, body)) };
}

function endOf(erased: readonly ErasedDisk[], value: MessageInitShape<typeof DiskWipeResultSchema>): KindEnd {
  const failed = erased.filter((one) => !one.erased);
  if (failed.length === 0) return succeeded(DiskWipeResultSchema, value);
  const each = failed.map(({ disk, detail }) => `${disk?.name} (serial ${disk?.serial || 'none'}): ${detail}`);
  return {
    kind: 'failed',
    code: 'NOT_ERASED',
    message: `${failed.length} of ${erased.length} disks were not erased: ${each.join('; ')}`,
    answer: { schema: DiskWipeResultSchema, value },
  };
}
