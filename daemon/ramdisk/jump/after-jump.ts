/**
 * For development and demonstrations alone: the jump as a hand-over to another program on the same machine. The files of the deployed
 * disk's configuration are put into a folder, as the system that was deployed would find them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import { readSeed } from '../deploy/seed.ts';
import type { DiskHost } from '../disks/disk-host.ts';
import type { BootOfRun, JumpTarget } from '../ports.ts';
import type { JumpDoer } from './journaled-jump.ts';

export interface HandOver {
  readonly command: string;
  readonly seedFolder: string;
  readonly boot: BootOfRun;
  /** Through the firmware: what is booted then is not on this disk alone. */
  readonly reboot: boolean;
}

export function handOverJump(
  { disks, scratch, command, boot }: { disks: DiskHost; scratch: string; command: string; boot: BootOfRun },
  leave: (handOver: HandOver) => void,
): JumpDoer {
  const seedFolder = join(scratch, 'seed');
  return {
    load: async ({ diskPath, reboot }) => (reboot ? '' : `a program in the place of ${diskPath}`),
    async go(wanted) {
      await unpackSeed(disks, { wanted, seedFolder });
      leave({ command, seedFolder, boot, reboot: wanted.reboot });
    },
  };
}

async function unpackSeed(disks: DiskHost, { wanted, seedFolder }: { wanted: JumpTarget; seedFolder: string }): Promise<void> {
  const disk = (await disks.list()).find((one) => disks.path(one) === wanted.diskPath);
  if (disk === undefined)
    throw new ControlError('NOT_FOUND', `there is no disk ${wanted.diskPath}`, { details: { reason: 'no-such-disk' } });
  const handle = await disks.open(disk, 'read');
  try {
    await mkdir(seedFolder, { recursive: true, mode: 0o700 });
    for (const [name, content] of Object.entries(await readSeed(handle, disk.logicalBlockBytes)))
      await writeFile(join(seedFolder, name), content, { mode: 0o600 });
  } finally {
    await handle.close();
  }
}

/** The follow-up program, in a shell, with where the configuration lies in its environment. */
export const startHandOver = ({ command, seedFolder, boot, reboot }: HandOver): ChildProcess =>
  spawn('/bin/sh', ['-c', command], {
    stdio: 'inherit',
    env: {
      ...process.env,
      BETTER_COMPUTE_SEED: seedFolder,
      BETTER_COMPUTE_NODE: boot.nodeId,
      BETTER_COMPUTE_RUN: boot.runId,
      BETTER_COMPUTE_BOOTED: reboot ? 'firmware' : 'kexec',
    },
  });
