/**
 * The command tree and one run of it. A command module registers itself under the program; settings that make every
 * command behave alike (errors thrown instead of exits, help to the io, refusal of extra arguments) are laid over the whole
 * tree afterwards, so no module can forget them.
 */
import { Command } from 'commander';
import { type CommandEntry, commandModules } from './commands/index.ts';
import { toExit, writeExit } from './exit.ts';
import type { CliIo } from './io.ts';

export const version = '0.1.0';

/** Builds the tree: all of it, or only the branch that begins with `branch`. */
export async function createProgram(io: CliIo, branch?: string): Promise<Command> {
  const program = new Command('better-compute')
    .description('Operate a fleet: rotate its keys, see its nodes, run its commands, find what is stuck.')
    .version(version)
    .option('--json', 'write data as JSON on standard output');
  for (const { load } of modulesFor(branch)) (await load()).register(program, io);
  settle(program, io);
  return program;
}

/** A word that names no module needs the whole tree: help, completion, and "did you mean". */
function modulesFor(branch: string | undefined): readonly CommandEntry[] {
  const found = commandModules.filter(({ names }) => branch !== undefined && branch !== 'completion' && names.includes(branch));
  return found.length > 0 ? found : commandModules;
}

/** Runs one command line and answers the exit code. Never throws, never exits the process. */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  try {
    const program = await createProgram(
      io,
      argv.find((word) => !word.startsWith('-')),
    );
    await program.parseAsync(argv, { from: 'user' });
    return 0;
  } catch (error) {
    return writeExit(io, toExit(error), asksForJson(argv));
  }
}

function settle(command: Command, io: CliIo): void {
  command
    .exitOverride()
    .showSuggestionAfterError(true)
    .allowExcessArguments(false)
    .configureOutput({ writeOut: (text) => io.out(text), writeErr: (text) => io.err(text), outputError: () => undefined });
  for (const child of command.commands) settle(child, io);
}

/** Read from the words, because the error may be that they do not parse. */
const asksForJson = (argv: readonly string[]): boolean => {
  const end = argv.indexOf('--');
  return (end === -1 ? argv : argv.slice(0, end)).includes('--json');
};
