/** Every command module of the program, in the order help shows them. A new module is one line here. */
import type { Command } from 'commander';
import type { CliIo } from '../io.ts';

export interface CommandModule {
  /** Adds the module's commands under `program`; `--json` is read by `command.optsWithGlobals()`. */
  register(program: Command, io: CliIo): void;
}

export const commandModules: readonly (() => Promise<CommandModule>)[] = [
  () => import('./start.ts'),
  () => import('./rotation/index.ts'),
  () => import('./nodes/index.ts'),
  () => import('./tokens/index.ts'),
  () => import('./commands/index.ts'),
  () => import('./pki/index.ts'),
  () => import('./stuck.ts'),
  () => import('./doctor.ts'),
  () => import('./completion.ts'),
];
