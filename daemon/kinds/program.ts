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

export const spawnFailure = (name: string, cause: unknown): ControlError =>
  hasErrno(cause, 'ENOENT')
    ? new ControlError('UNSUPPORTED', `this machine has no ${name}`, { cause, details: { reason: 'no-program' } })
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
