/** How each method of domain/metal/erase.ts is carried out. A tool that ends with another status than 0 has failed (M50). */
import { ControlError } from '../../../domain/errors.ts';
import type { EraseMethod } from '../../../domain/metal/erase.ts';
import type { DiskFacts, DiskHost } from '../disks/disk-host.ts';
import { overwrite } from './overwrite.ts';

export interface EraseWork {
  readonly disks: DiskHost;
  readonly disk: DiskFacts;
  readonly signal: AbortSignal;
  readonly onBytes: (done: number) => void;
}

const runs: Readonly<Record<EraseMethod, (work: EraseWork) => Promise<void>>> = Object.freeze({
  'nvme-format-ses2': (work) => tool(work, 'nvme', ['format', pathOf(work), '--ses=2', '--force']),
  'nvme-format-ses1': (work) => tool(work, 'nvme', ['format', pathOf(work), '--ses=1', '--force']),
  'ata-secure-erase-enhanced': (work) => ataErase(work, '--security-erase-enhanced'),
  'ata-secure-erase': (work) => ataErase(work, '--security-erase'),
  'blkdiscard-secure': (work) => tool(work, 'blkdiscard', ['--secure', '--force', pathOf(work)]),
  'overwrite-random-zero': overwriteAll,
});

/** @throws UNAVAILABLE `erase-tool` with what the tool said; UNSUPPORTED without the tool; the disk's own errors */
export const runEraseMethod = (method: EraseMethod, work: EraseWork): Promise<void> => runs[method](work);

const pathOf = ({ disks, disk }: EraseWork): string => disks.path(disk);

async function tool({ disks, signal }: EraseWork, name: string, args: readonly string[]): Promise<void> {
  const { status, stderr, stdout } = await disks.tool(name, args, signal);
  if (status === 0) return;
  const said = (stderr.trim() || stdout.trim()).split('\n')[0] ?? '';
  throw new ControlError('UNAVAILABLE', `${name} ended with status ${status ?? 'none'}${said === '' ? '' : `: ${said.slice(0, 200)}`}`, {
    details: { reason: 'erase-tool' },
  });
}

/** The erase needs a password, and takes it away; one that failed must not leave the drive locked for ever. */
const ataPassword = 'better-compute';

async function ataErase(work: EraseWork, erase: string): Promise<void> {
  const user = ['--user-master', 'u'];
  await tool(work, 'hdparm', [...user, '--security-set-pass', ataPassword, pathOf(work)]);
  try {
    await tool(work, 'hdparm', [...user, erase, ataPassword, pathOf(work)]);
  } catch (error) {
    await work.disks
      .tool('hdparm', [...user, '--security-disable', ataPassword, pathOf(work)], AbortSignal.timeout(60_000))
      .catch(() => undefined);
    throw error;
  }
}

async function overwriteAll({ disks, disk, signal, onBytes }: EraseWork): Promise<void> {
  const handle = await disks.open(disk, 'write');
  try {
    await overwrite(handle, disk, { signal, onBytes });
  } finally {
    await handle.close();
  }
}
