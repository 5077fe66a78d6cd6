/** Runs a program with fixed arguments, no shell, bounded output, and ends it when the command is cancelled. */
import { type ChildProcess, spawn } from 'node:child_process';
import { ControlError } from '../../domain/errors.ts';
import { hasErrno } from '../state/files.ts';

export interface ProgramEnd {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const outputMaxBytes = 64 * 1024;

/** @throws UNSUPPORTED when this machine has no such program; the signal's reason when it was aborted */
export function runProgram(name: string, args: readonly string[], signal: AbortSignal): Promise<ProgramEnd> {
  signal.throwIfAborted();
  const child = spawn(name, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const onAbort = (): void => void child.kill('SIGTERM');
  signal.addEventListener('abort', onAbort, { once: true });
  const stdout = collected(child.stdout);
  const stderr = collected(child.stderr);
  return new Promise<ProgramEnd>((resolve, reject) => {
    child.once('error', (cause) => reject(spawnFailure(name, cause)));
    child.once('close', (status) => {
      if (signal.aborted) reject(signal.reason as Error);
      else resolve({ status, stdout: stdout(), stderr: stderr() });
    });
  }).finally(() => signal.removeEventListener('abort', onAbort));
}

/** What to do without a program; the result of a command carries its message alone, so it stands there. */
const without: Readonly<Record<string, string>> = Object.freeze({
  zstd: 'offer the image as gzip or uncompressed, or build the ramdisk where zstd is (npm run ramdisk)',
  'qemu-img': 'offer the image as raw, or build the ramdisk where qemu-img is (npm run ramdisk)',
  kexec: 'have the profile start it by: reboot, or build the ramdisk where kexec is (npm run ramdisk)',
  nvme: 'allow another way to erase in the profile, or build the ramdisk where nvme is (npm run ramdisk)',
  hdparm: 'allow another way to erase in the profile, or build the ramdisk where hdparm is (npm run ramdisk)',
  dcgmi: 'leave the diagnosis of GPUs out of the profile, or use a ramdisk that holds it',
  systemctl: 'units are restarted where systemd runs them',
  journalctl: 'name a file in logFiles of config.json in the place of a unit',
});

export const spawnFailure = (name: string, cause: unknown): ControlError =>
  hasErrno(cause, 'ENOENT')
    ? new ControlError('UNSUPPORTED', `this machine has no ${name}${Object.hasOwn(without, name) ? `: ${without[name]}` : ''}`, {
        cause,
        details: { reason: 'no-program' },
      })
    : new ControlError('UNAVAILABLE', `${name} could not be started`, { cause, details: { reason: 'spawn-failed' } });

function collected(stream: NonNullable<ChildProcess['stdout']>): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    if (bytes < outputMaxBytes) chunks.push(chunk);
    bytes += chunk.length;
  });
  return () => Buffer.concat(chunks).subarray(0, outputMaxBytes).toString('utf8');
}

/** The name of a unit as systemd allows it; never something a program could take for an option. */
export const isUnitName = (name: string): boolean => /^[A-Za-z0-9_@:][A-Za-z0-9_.@:\\-]{0,254}$/.test(name);
