/** Every command module of the program, in the order help shows them. A new module is one line here. */
import type { Command } from 'commander';
import type { CliIo } from '../io.ts';

export interface CommandModule {
  /** Adds the module's commands under `program`; `--json` is read by `command.optsWithGlobals()`. */
  register(program: Command, io: CliIo): void;
}

export interface CommandEntry {
  /** The words that lead to it. Only the module that was asked for is loaded. */
  readonly names: readonly string[];
  readonly load: () => Promise<CommandModule>;
}

export const commandModules: readonly CommandEntry[] = [
  { names: ['start', 'up'], load: () => import('./start.ts') },
  { names: ['rotation'], load: () => import('./rotation/index.ts') },
  { names: ['nodes'], load: () => import('./nodes/index.ts') },
  { names: ['tenants'], load: () => import('./tenants/index.ts') },
  { names: ['tokens'], load: () => import('./tokens/index.ts') },
  { names: ['enrolments'], load: () => import('./enrolments/index.ts') },
  { names: ['joins'], load: () => import('./joins/index.ts') },
  { names: ['secrets'], load: () => import('./secrets/index.ts') },
  { names: ['commands'], load: () => import('./commands/index.ts') },
  { names: ['machine'], load: () => import('./machine/index.ts') },
  { names: ['site'], load: () => import('./site/index.ts') },
  { names: ['profile'], load: () => import('./profile/index.ts') },
  { names: ['fleet'], load: () => import('./fleet/index.ts') },
  { names: ['evidence'], load: () => import('./evidence/index.ts') },
  { names: ['batch'], load: () => import('./batch/index.ts') },
  { names: ['approvers'], load: () => import('./approvers/index.ts') },
  { names: ['pki'], load: () => import('./pki/index.ts') },
  { names: ['daemon'], load: () => import('./daemon/index.ts') },
  { names: ['audit'], load: () => import('./audit/index.ts') },
  { names: ['sandbox'], load: () => import('./sandbox/index.ts') },
  { names: ['tunnel'], load: () => import('./tunnel/index.ts') },
  { names: ['ssh'], load: () => import('./ssh/index.ts') },
  { names: ['mcp'], load: () => import('./mcp.ts') },
  { names: ['stuck'], load: () => import('./stuck.ts') },
  { names: ['doctor'], load: () => import('./doctor.ts') },
  { names: ['completion'], load: () => import('./completion.ts') },
];
