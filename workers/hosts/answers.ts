/** What a machine prints, read within bounds: its texts are an unknown machine's. */
import { z } from 'zod';
import type { MachineFacts } from '../../domain/enrolment/machine.ts';
import { type Code, ControlError, isCode } from '../../domain/errors.ts';
import { redactText } from '../../runtime/log.ts';
import type { HostOutput } from './ssh.ts';

const longestWord = 300;

/** Printable, on one line, without what looks like a secret. */
const word = (text: string): string => redactText(text.replaceAll(/[^\x20-\x7e]+/g, ' ').trim()).slice(0, longestWord);

export function factsOf({ stdout }: HostOutput): MachineFacts {
  const said = new Map(
    stdout.split('\n').map((line) => {
      const at = line.indexOf('=');
      return [line.slice(0, Math.max(0, at)), word(line.slice(at + 1))] as const;
    }),
  );
  const of = (name: string): string => said.get(name) ?? '';
  return {
    system: of('system'),
    uid: of('uid'),
    node: of('node'),
    systemctl: of('systemctl'),
    sha256: of('sha256'),
    version: of('version'),
    joined: of('joined') === 'yes',
    otherUnit: of('unit') === 'other',
  };
}

/** @throws INVALID_STATE (host-step) with what the machine said; UNAVAILABLE for what a signal ended there, as a restart of the machine does */
export function assertDone(output: HostOutput, what: string): void {
  if (output.code !== 0) throw failed(output, what);
}

function failed({ code, stdout, stderr }: HostOutput, what: string): ControlError {
  const said = word(stderr) || word(stdout) || 'nothing was said';
  const details = { reason: 'host-step', step: what };
  if (code === null) return new ControlError('UNAVAILABLE', `${what} was ended on the machine: ${said}`, { details });
  return new ControlError('INVALID_STATE', `${what} failed on the machine (exit code ${code}): ${said}`, { details });
}

const refusal = z.object({ error: z.object({ code: z.string().max(64), message: z.string(), details: z.unknown().optional() }) });

/** What bcd answers with --json. @throws what it refuses with; INVALID_RESPONSE (host-answer) for what is no such answer */
export function bcdAnswer<T>(output: HostOutput, schema: z.ZodType<T>, what: string): T {
  const value = parseJson(output.stdout);
  if (output.code === 0) {
    const parsed = schema.safeParse(value);
    if (parsed.success) return parsed.data;
    throw new ControlError('INVALID_RESPONSE', `${what}: bcd on the machine answered something else than expected`, {
      details: { reason: 'host-answer', step: what },
    });
  }
  const refused = refusal.safeParse(value);
  if (!refused.success) throw failed(output, what);
  const { code, message } = refused.data.error;
  throw new ControlError(codeFrom(code), `${what}, on the machine: ${word(message)}`, { details: { reason: 'host-refused', step: what } });
}

/** A machine may say that something is to be tried again, and what is not; nothing of ours is broken because it says so. */
const codeFrom = (code: string): Code => (isCode(code) && code !== 'INTERNAL' ? code : 'INVALID_STATE');

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
