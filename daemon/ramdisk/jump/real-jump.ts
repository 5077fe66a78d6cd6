/** Leaving this boot for good: kexec into the kernel on a disk, or a restart through the firmware. */
import { mkdir, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import { type ProgramEnd, runProgram } from '../../kinds/program.ts';
import type { JumpTarget } from '../ports.ts';
import { findKernel, type KernelOnDisk } from './find-kernel.ts';
import type { JumpDoer } from './journaled-jump.ts';

type Run = (name: string, args: readonly string[], signal: AbortSignal) => Promise<ProgramEnd>;

export interface RealJumpOptions {
  readonly scratch: string;
  readonly run?: Run;
  /** Of the file system that is read; `/` but in tests. */
  readonly root?: string;
}

export function realJump({ scratch, run = runProgram, root = '/' }: RealJumpOptions): JumpDoer {
  return {
    async load(wanted, signal) {
      if (wanted.reboot) return '';
      const partitions = await partitionsOf(root, wanted);
      const mountPoint = join(scratch, 'system');
      await mkdir(mountPoint, { recursive: true });
      for (const partition of partitions) {
        const mounted = await run('mount', ['-o', 'ro', partition, mountPoint], signal);
        if (mounted.status !== 0) continue;
        try {
          const found = await findKernel(mountPoint);
          if (found !== undefined) return await loadKernel(run, { found, wanted, partition }, signal);
        } finally {
          await run('umount', [mountPoint], AbortSignal.timeout(30_000));
        }
      }
      throw new ControlError('NOT_FOUND', `no kernel on ${partitions.join(', ') || wanted.diskPath}`, { details: { reason: 'no-kernel' } });
    },
    async go({ reboot }) {
      const forever = new AbortController().signal;
      await run('sync', [], forever);
      const end = reboot ? await run('reboot', ['-f'], forever) : await run('kexec', ['-e'], forever);
      // It came back: the machine is still here, and the run will power-cycle it when nobody joins.
      throw new ControlError('UNAVAILABLE', `${reboot ? 'the restart' : 'kexec'} did not happen: ${firstLine(end)}`, {
        details: { reason: 'no-jump' },
      });
    },
  };
}

/** In their order on the disk; the named one alone where one is named. */
async function partitionsOf(root: string, { diskPath, partition }: JumpTarget): Promise<string[]> {
  const name = basename(diskPath);
  const separator = /\d$/.test(name) ? 'p' : '';
  if (partition !== 0) return [`${diskPath}${separator}${partition}`];
  const files = await readdir(join(root, 'sys/block', name)).catch(() => []);
  const own = files.filter((file) => new RegExp(`^${name}${separator}\\d+$`).test(file));
  return own.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).map((file) => `/dev/${file}`);
}

interface Loading {
  readonly found: KernelOnDisk;
  readonly wanted: JumpTarget;
  readonly partition: string;
}

/** By the file call first, which lets the kernel check a signature; the older call where this kernel has no other. */
async function loadKernel(run: Run, { found, wanted, partition }: Loading, signal: AbortSignal): Promise<string> {
  const args = wanted.kernelArgs || found.args || `root=${partition} ro`;
  const initrds = found.initrds.length === 0 ? [] : [`--initrd=${found.initrds[0]}`];
  const tried: string[] = [];
  for (const call of ['-s', '-c']) {
    const end = await run('kexec', [call, '-l', found.kernel, ...initrds, `--command-line=${args}`], signal);
    if (end.status === 0) return `${basename(found.kernel)} from ${partition}`;
    tried.push(`kexec ${call}: ${firstLine(end)}`);
  }
  throw new ControlError('UNSUPPORTED', `the kernel refuses to load ${basename(found.kernel)}: ${tried.join('; ')}`, {
    details: { reason: 'kexec-refused', hint: 'under Secure Boot an unsigned kernel is refused: restart through the firmware instead' },
  });
}

const firstLine = ({ status, stderr, stdout }: ProgramEnd): string =>
  `status ${status ?? 'none'}${(stderr || stdout).trim() === '' ? '' : `, ${((stderr || stdout).trim().split('\n')[0] ?? '').slice(0, 200)}`}`;
