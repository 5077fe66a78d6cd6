/** The programs of tpm2-tools: fixed arguments, no shell, a time limit, and their own words where one fails. */
import { ControlError, codeOf } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { runProgram } from '../kinds/program.ts';

/** An endorsement key of RSA is made from its seed each time; slow TPMs take the better part of a minute for it. */
const programWithinMs = 3 * minute;

/** How a TPM is reached, in the words of tpm2-tss: `device:/dev/tpmrm0`, `swtpm:path=/run/tpm.sock`. */
export const isTcti = (text: string): boolean => /^[a-z][a-z0-9_-]{0,31}(:[\x21-\x7e]{1,200})?$/.test(text);

export type RunTpmTool = (program: string, args: readonly string[]) => Promise<void>;

/**
 * @param signal ends the program that runs, and lets no other begin
 * @throws INVALID_STATE (tpm) with the words of a program that failed; UNSUPPORTED where it is not installed; the signal's reason
 */
export const tpmTools =
  (tcti: string, signal?: AbortSignal): RunTpmTool =>
  async (program, args) => {
    const within = AbortSignal.timeout(programWithinMs);
    const until = signal === undefined ? within : AbortSignal.any([within, signal]);
    const { status, stderr } = await runProgram(program, ['-T', tcti, ...args], until).catch((error: unknown) => {
      throw understood(program, tcti, error);
    });
    if (status === 0) return;
    throw failed(`${program} failed with the TPM at ${tcti}: ${lastWords(stderr)}`, { tcti });
  };

function understood(program: string, tcti: string, error: unknown): unknown {
  if (codeOf(error) === 'UNSUPPORTED')
    return new ControlError('UNSUPPORTED', (error as Error).message, {
      cause: error,
      details: { reason: 'no-program', hint: 'install tpm2-tools (Debian: apt-get install tpm2-tools)' },
    });
  if ((error as Error).name !== 'TimeoutError') return error;
  return failed(`${program} got no answer from the TPM at ${tcti} within ${programWithinMs / minute} minutes`, { tcti });
}

const failed = (message: string, details: Readonly<Record<string, string>>): ControlError =>
  new ControlError('INVALID_STATE', message, { details: { reason: 'tpm', ...details } });

/** The first complaint says most: what follows it is its echo from the layers above. */
function lastWords(stderr: string): string {
  const lines = stderr.split('\n').filter((line) => line.startsWith('ERROR'));
  return (lines[0] ?? stderr.trim().split('\n').at(-1) ?? '').slice(0, 300);
}
