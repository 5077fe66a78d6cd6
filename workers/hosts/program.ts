/** The program that this worker brings to machines: read once, at its start. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { ReleaseProgram } from '../../domain/enrolment/machine.ts';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';

export interface BroughtProgram extends ReleaseProgram {
  readonly content: Uint8Array;
}

/** @throws INVALID_CONFIG for what is no bcd */
export async function readProgram(path: string): Promise<BroughtProgram> {
  const invalid = (why: string, cause: unknown): ControlError =>
    new ControlError('INVALID_CONFIG', `BETTER_COMPUTE_HOST_BCD: ${path} ${why}`, {
      details: { reason: 'host-program', hint: 'make it: npm run bcd -- --out ./bcd' },
      cause,
    });
  const content = await readFile(path).catch((cause: unknown) => {
    throw invalid('cannot be read', cause);
  });
  const { stdout } = await promisify(execFile)(path, ['--version'], { timeout: 30 * second }).catch((cause: unknown) => {
    throw invalid('does not run', cause);
  });
  const version = stdout.trim();
  if (!/^\d{1,6}\.\d{1,6}\.\d{1,6}$/.test(version)) throw invalid('does not say its version', undefined);
  return { content, version, sha256: createHash('sha256').update(content).digest('hex') };
}
