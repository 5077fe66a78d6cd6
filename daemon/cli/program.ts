/** The command tree of bcd, and one run of it. */
import { Command } from 'commander';
import { daemonVersion } from '../version.ts';
import { examples } from './common.ts';
import { registerEnrol } from './enrol.ts';
import { writeFailure } from './exit.ts';
import type { BcdIo } from './io.ts';
import { registerJoin } from './join.ts';
import { registerPlugins } from './plugins.ts';
import { registerRamdisk } from './ramdisk.ts';
import { registerRun, registerSite } from './run.ts';
import { registerStatus } from './status.ts';

export function createProgram(io: BcdIo): Command {
  const program = new Command('bcd')
    .description('The daemon of a machine in the fleet: it dials out, believes only signatures, and runs each command once.')
    .version(daemonVersion)
    .option('--json', 'write data as JSON on standard output');
  registerJoin(program, io);
  registerEnrol(program, io);
  registerRun(program);
  registerSite(program);
  registerRamdisk(program);
  registerPlugins(program, io);
  registerStatus(program, io);
  examples(program, ['bcd join "$(better-compute tokens create)"', 'bcd run', 'bcd status --json']);
  for (const command of [program, ...program.commands, ...program.commands.flatMap(({ commands }) => commands)]) {
    command
      .exitOverride()
      .showSuggestionAfterError(true)
      .allowExcessArguments(false)
      .configureOutput({
        writeOut: (text) => io.out(text.trimEnd()),
        writeErr: (text) => io.err(text.trimEnd()),
        outputError: () => undefined,
      });
  }
  return program;
}

/** Runs one command line and answers the exit code. `bcd run` ends the process itself. */
export async function runBcd(argv: readonly string[], io: BcdIo): Promise<number> {
  try {
    await createProgram(io).parseAsync(argv, { from: 'user' });
    return 0;
  } catch (error) {
    return writeFailure(io, error, argv.includes('--json'));
  }
}
