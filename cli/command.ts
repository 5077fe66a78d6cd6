/** What every command shares: examples in its help, the global --json, who acts, and the guard before what cannot be undone. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../domain/errors.ts';
import type { CliIo } from './io.ts';

/** Options every command has, whatever else it takes. */
export interface CommonOptions {
  readonly json: boolean;
}

export interface SignedOptions extends CommonOptions {
  readonly actor: string;
  readonly reason: string;
}

export const commonOptions = (command: Command): CommonOptions => ({ json: command.optsWithGlobals()['json'] === true });

/** Examples, as the last part of the help; docs/cli.md is made from the same text. */
export function withExamples(command: Command, examples: readonly string[]): Command {
  return command.addHelpText('after', `\nExamples:\n${examples.map(promptBefore).join('\n')}`);
}

/** A line that begins with spaces goes on with the one before it. */
const promptBefore = (example: string): string => (example.startsWith(' ') ? `  ${example}` : `  $ ${example}`);

export const actorOption = (io: Pick<CliIo, 'env' | 'user'>): Option =>
  new Option('--actor <name>', 'who acts, for the audit trail').default(defaultActor(io), 'the operating-system user');

const defaultActor = (io: Pick<CliIo, 'env' | 'user'>): string => io.env['BETTER_COMPUTE_ACTOR'] || io.user();

export const reasonOption = (): Option =>
  new Option('--reason <text>', 'why, for the audit trail').makeOptionMandatory().argParser(parseReason);

function parseReason(value: string): string {
  if (value.trim() === '') throw new InvalidArgumentError('A reason has words.');
  return value;
}

export const yesOption = (): Option => new Option('--yes', 'do it without asking').default(false);

/**
 * Stands before what cannot be undone.
 *
 * @throws CANCELLED when a person says no, INVALID_INPUT when there is none to ask
 */
export async function assertConfirmed(io: Pick<CliIo, 'confirm' | 'isTerminal'>, yes: boolean, question: string): Promise<void> {
  if (yes || (await io.confirm(question))) return;
  if (io.isTerminal) throw new ControlError('CANCELLED', 'nothing was changed', { details: { reason: 'not-confirmed' } });
  throw new ControlError('INVALID_INPUT', `this needs --yes where nobody can be asked: ${question}`, {
    details: { reason: 'needs-yes', hint: 'add --yes' },
  });
}

/** A positive whole number. For commander's argParser. */
export function wholeNumber(value: string): number {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new InvalidArgumentError('It must be a whole number above 0.');
  return Number(value);
}

const units: Readonly<Record<string, number>> = Object.freeze({ ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 });

/** 90s, 15m, 2h, 7d → milliseconds. For commander's argParser. */
export function duration(value: string): number {
  const match = /^([1-9]\d{0,8})(ms|s|m|h|d)$/.exec(value);
  if (match === null) throw new InvalidArgumentError('It must be a number with a unit, such as 90s, 15m, 2h or 7d.');
  return Number(match[1]) * (units[match[2] ?? ''] ?? 1);
}

/** The only place where a plain verb name meets its noun: `better-compute <noun> <verb>`. */
export function findGroup(program: Command, name: string, description: string): Command {
  return program.commands.find((command) => command.name() === name) ?? program.command(name).description(description);
}
