/** bcd's one translator of errors: two lines for a person, an object for a machine with --json, the exit code from the error table. */
import { CommanderError } from 'commander';
import { codeOf, errorTable, isControlError } from '../../domain/errors.ts';
import { redactText } from '../../runtime/log.ts';
import type { BcdIo } from './io.ts';

/** Writes what there is to say and answers the exit code. Never throws. */
export function writeFailure(io: BcdIo, error: unknown, json: boolean): number {
  if (error instanceof CommanderError) return fromCommander(io, error, json);
  const code = codeOf(error);
  const { hint: own, ...details } = isControlError(error) ? error.details : {};
  const hint = typeof own === 'string' ? own : errorTable[code].hint;
  const message = redactText(error instanceof Error && error.message !== '' ? error.message : String(error));
  return write(io, { code, message, hint, details }, json);
}

function write(
  io: BcdIo,
  error: { code: keyof typeof errorTable; message: string; hint: string; details: Readonly<Record<string, unknown>> },
  json: boolean,
): number {
  const exitCode = errorTable[error.code].exit;
  if (json) io.out(JSON.stringify({ error: { ...error, exitCode } }, bigintAsText, 2));
  io.err(`error: ${error.message}`);
  io.err(`hint: ${error.hint}`);
  return exitCode;
}

export const bigintAsText = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? value.toString() : value);

const asked: Readonly<Record<string, number>> = Object.freeze({
  'commander.helpDisplayed': 0,
  'commander.version': 0,
  'commander.help': 2,
});

function fromCommander(io: BcdIo, error: CommanderError, json: boolean): number {
  const exitCode = asked[error.code];
  if (exitCode !== undefined) return exitCode;
  // "error: unknown option '--jsn'\n(Did you mean --json?)": the second line is our hint.
  const [first = '', ...rest] = error.message.split('\n');
  const nearest = /Did you mean (?:one of )?(.+)\?\)?$/.exec(rest.join(' '))?.[1];
  const hint = nearest === undefined ? 'bcd --help shows the commands; bcd <command> --help its flags' : `did you mean ${nearest}?`;
  return write(
    io,
    { code: 'INVALID_INPUT', message: redactText(first.replace(/^error: /, '').replace(/\.$/, '')), hint, details: { reason: 'usage' } },
    json,
  );
}
