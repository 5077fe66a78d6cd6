/**
 * What a deployed system finds beside itself: cloud-init's NoCloud files in a small FAT partition labelled CIDATA at the end of the disk,
 * and the join string with which it asks for its own identity.
 *
 * The join string lies on the disk in clear. It is good for one join of one node id, and for minutes (attestor provisioned).
 */

import { ControlError } from '../../../domain/errors.ts';
import type { DiskHandle } from '../disks/disk-host.ts';
import { encodeFat, type FatFiles, fatBytes, readFat } from './fat.ts';
import { parseGpt } from './gpt.ts';
import { headBytes } from './write-image.ts';

export const seedLabel = 'CIDATA';
/** Where the join string lies in the seed. */
const joinFile = 'bc-join';

export interface SeedContent {
  readonly nodeId: string;
  readonly runId: string;
  /** null: none was asked for. */
  readonly userData: Uint8Array | null;
  /** JSON; empty: what a system needs at least. */
  readonly metaData: string;
  readonly networkConfig: string;
  readonly join: Uint8Array | null;
}

/** null when nothing was asked for. @throws INVALID_INPUT for meta data that is no JSON object */
export function seedFiles({ nodeId, runId, userData, metaData, networkConfig, join }: SeedContent): FatFiles | null {
  if (userData === null && metaData === '' && networkConfig === '' && join === null) return null;
  const text = (value: string): Uint8Array => Buffer.from(value, 'utf8');
  return {
    'meta-data': text(metaData === '' ? JSON.stringify({ 'instance-id': runId, 'local-hostname': nodeId }) : checkedMetaData(metaData)),
    'user-data': userData ?? text('#cloud-config\n{}\n'),
    ...(networkConfig === '' ? {} : { 'network-config': text(networkConfig) }),
    ...(join === null ? {} : { [joinFile]: join, 'vendor-data': text(vendorData(nodeId, Buffer.from(join).toString('utf8').trim())) }),
  };
}

function checkedMetaData(json: string): string {
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return json;
  } catch {
    // The same answer as for JSON of another kind.
  }
  throw new ControlError('INVALID_INPUT', 'meta_data must be a JSON object', { details: { reason: 'meta-data' } });
}

/** Where bcd is part of the image: joins on the first boot, and goes on as a service. Beside the user's own data, never in it. */
function vendorData(nodeId: string, join: string): string {
  const path = '/run/better-compute/join';
  return `#cloud-config\n${JSON.stringify({
    write_files: [{ path, permissions: '0600', owner: 'root:root', content: join }],
    runcmd: [
      ['bcd', 'join', '--node-id', nodeId, '--wait', '900', `@${path}`],
      ['rm', '-f', path],
      ['systemctl', 'enable', '--now', 'bcd'],
    ],
  })}\n`;
}

export const seedBytes = fatBytes;

export const encodeSeed = (files: FatFiles, blockBytes: number, serial: number): Buffer =>
  encodeFat(files, { blockBytes, label: seedLabel, serial });

/** Reads the seed of a disk that was deployed here. @throws NOT_FOUND when it has none */
export async function readSeed(handle: DiskHandle, blockBytes: number): Promise<FatFiles> {
  const { partitions } = parseGpt(await handle.read(0, headBytes), blockBytes);
  const seed = partitions.find(({ name }) => name === seedLabel);
  if (seed === undefined) throw new ControlError('NOT_FOUND', `the disk has no partition ${seedLabel}`, { details: { reason: 'no-seed' } });
  return readFat(await handle.read(seed.first * blockBytes, (seed.last - seed.first + 1) * blockBytes));
}
