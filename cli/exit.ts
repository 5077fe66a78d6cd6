/**
 * The CLI's one translator of errors: what a person reads (`error: …`, then `hint: …`), what a machine reads with --json,
 * and the exit code, all three from the error table.
 */
import { CommanderError } from 'commander';
import { type Code, type ControlError, errorTable, isCode } from '../domain/errors.ts';
import { codePointEscape, showUnseen } from '../domain/text/unseen.ts';
import type { CliIo } from './io.ts';
import { writeJson } from './io.ts';

/** Ends a run with an exit code when everything there is to say has been said. */
export class QuietExit extends Error {
  override readonly name = 'QuietExit';
  readonly exitCode: number;

  constructor(exitCode: number) {
    super(`exit ${exitCode}`);
    this.exitCode = exitCode;
  }
}

export interface Exit {
  readonly exitCode: number;
  /** Empty when there is nothing to say (help, --version). */
  readonly lines: readonly string[];
  /** null when it is no error. */
  readonly json: { readonly error: ErrorObject } | null;
}

export interface ErrorObject {
  readonly code: Code;
  readonly message: string;
  readonly hint: string;
  readonly exitCode: number;
  readonly details: Readonly<Record<string, unknown>>;
}

/** Any thrown value → how the process ends. Never throws. */
export function toExit(error: unknown): Exit {
  if (isNamed<QuietExit>(error, 'QuietExit')) return { exitCode: error.exitCode, lines: [], json: null };
  if (error instanceof CommanderError) return fromCommander(error);
  const ours = isNamed<ControlError>(error, 'ControlError') && isCode(error.code) ? error : null;
  const code = ours?.code ?? 'INTERNAL';
  const message = error instanceof Error && error.message !== '' ? error.message : String(error);
  const { hint: ownHint, ...details } = ours?.details ?? {};
  return failure({ code, message, hint: typeof ownHint === 'string' ? ownHint : errorTable[code].hint, details });
}

/**
 * By name, not by class: a command's module may have been loaded by the other of node's two module systems, whose classes
 * are not ours.
 */
const isNamed = <E extends Error>(error: unknown, name: E['name']): error is E => error instanceof Error && error.name === name;

/** Writes an exit: the object on stdout with --json, the lines on stderr always. */
export function writeExit(io: CliIo, exit: Exit, json: boolean): number {
  if (json && exit.json !== null) writeJson(io, exit.json);
  for (const text of exit.lines) io.err(text);
  return exit.exitCode;
}

/** A message can hold what a stranger said, a machine or whoever gave a reason: nothing that a terminal obeys. */
const failure = (error: Omit<ErrorObject, 'exitCode'>): Exit => {
  const { exit } = errorTable[error.code];
  return {
    exitCode: exit,
    lines: [`error: ${error.message}`, `hint: ${error.hint}`].map((line) => showUnseen(line, codePointEscape, { lines: true })),
    json: { error: { ...error, exitCode: exit } },
  };
};

/** Help and version are no errors; a command group without a verb shows its help and says that something is missing. */
const quiet: Readonly<Record<string, number>> = Object.freeze({
  'commander.helpDisplayed': 0,
  'commander.version': 0,
  'commander.help': 2,
});

function fromCommander(error: CommanderError): Exit {
  const exitCode = quiet[error.code];
  if (exitCode !== undefined) return { exitCode, lines: [], json: null };
  // Commander writes "error: unknown option '--jsn'\n(Did you mean --json?)": the second line is our hint.
  const [first = '', ...rest] = error.message.split('\n');
  const nearest = /Did you mean (?:one of )?(.+)\?\)?$/.exec(rest.join(' '))?.[1];
  return failure({
    code: 'INVALID_INPUT',
    message: first.replace(/^error: /, '').replace(/\.$/, ''),
    hint: nearest === undefined ? 'run the command with --help for its arguments and flags' : `did you mean ${nearest}?`,
    details: { reason: error.code.replace(/^commander\./, '').replace(/[A-Z]/g, (upper) => `-${upper.toLowerCase()}`) },
  });
}
