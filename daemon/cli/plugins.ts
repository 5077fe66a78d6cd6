import { join } from 'node:path';
import type { Command } from 'commander';
import { ControlError } from '../../domain/errors.ts';
import { readDaemonConfig } from '../config.ts';
import { assertProgram, openPlugin, pluginNames } from '../plugins/plugin-folder.ts';
import { type CommonFlags, dataDirOption, examples, isJson } from './common.ts';
import type { BcdIo } from './io.ts';

interface PluginsFlags extends CommonFlags {
  readonly config?: string;
  readonly folder?: string;
}

interface Row {
  readonly plugin: string;
  /** Empty: it can be called. */
  readonly problem: string;
  readonly version: string;
  readonly manifestSha256: string;
  readonly methods: readonly { readonly name: string; readonly destructive: boolean }[];
}

export function registerPlugins(program: Command, io: BcdIo): void {
  const command = program
    .command('plugins')
    .description('Show the plugins that driver.invoke may call on this machine, and what is wrong with those it may not')
    .addOption(dataDirOption())
    .option('--config <file>', 'where pluginsFolder stands (default: config.json in the data folder)')
    .option('--folder <folder>', 'look into this folder instead, such as one that is about to be put in place')
    .action(async (flags: PluginsFlags) => {
      const folder = flags.folder ?? (await folderOf(flags));
      const rows = await Promise.all((await namesIn(folder)).map((name) => rowOf(folder, name)));
      // For programs, the problems are in the data.
      if (isJson(command)) return io.out(JSON.stringify({ folder, plugins: rows }));
      if (rows.length === 0) io.out(`no plugin is in ${folder}`);
      else for (const row of rows) io.out(linesOf(row).join('\n'));
      const bad = rows.filter(({ problem }) => problem !== '').length;
      if (bad > 0)
        throw new ControlError('INVALID_STATE', `${bad} of ${rows.length} plugin(s) cannot be called`, { details: { reason: 'plugins' } });
    });
  examples(command, ['bcd plugins', 'bcd plugins --folder /srv/plugins-of-tomorrow', 'bcd plugins --json']);
}

async function folderOf({ config, dataDir }: PluginsFlags): Promise<string> {
  const path = config ?? join(dataDir, 'config.json');
  const { pluginsFolder } = await readDaemonConfig(path, { mustExist: config !== undefined });
  if (pluginsFolder !== undefined) return pluginsFolder;
  throw new ControlError('NOT_FOUND', `${path} names no folder of plugins: set pluginsFolder, or give --folder`, {
    details: { reason: 'no-plugins' },
  });
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await pluginNames(folder);
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `the folder ${folder} cannot be read`, { cause, details: { reason: 'plugin-files' } });
  }
}

async function rowOf(folder: string, plugin: string): Promise<Row> {
  let known = { version: '', manifestSha256: '', methods: [] as Row['methods'] };
  try {
    const opened = await openPlugin(folder, plugin);
    const { version, methods } = opened.manifest;
    const shown = Object.entries(methods).map(([name, { destructive }]) => ({ name, destructive }));
    known = { version, manifestSha256: opened.manifestSha256, methods: shown };
    await assertProgram(opened);
    return { plugin, problem: '', ...known };
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    return { plugin, problem: error.message, ...known };
  }
}

const linesOf = ({ plugin, problem, version, manifestSha256, methods }: Row): string[] => [
  `${plugin}${version === '' ? '' : ` ${version}`}: ${problem === '' ? 'can be called' : `CANNOT BE CALLED: ${problem}`}`,
  ...(manifestSha256 === '' ? [] : [`  manifest ${manifestSha256}`]),
  ...methods.map(({ name, destructive }) => `  ${destructive ? 'destructive' : 'harmless   '} ${name}`),
];
