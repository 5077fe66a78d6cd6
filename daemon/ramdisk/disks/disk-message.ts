import type { MessageInitShape } from '@bufbuild/protobuf';
import type { DiskWanted } from '../../../domain/metal/select-disks.ts';
import type { DiskSchema, DiskSelector } from '../../../proto/index.ts';
import type { DiskFacts } from './disk-host.ts';

/** A disk on the wire. */
export function diskMessage({ sizeBytes, ...facts }: DiskFacts): MessageInitShape<typeof DiskSchema> {
  return { ...facts, sizeBytes: BigInt(sizeBytes) };
}

/** What a selector of the wire compares; absent: nothing. */
export const wantedDisk = (selector: DiskSelector | undefined): DiskWanted => ({
  serial: selector?.serial ?? '',
  wwn: selector?.wwn ?? '',
  model: selector?.model ?? '',
  sizeBytes: selector?.sizeBytes ?? 0n,
});
