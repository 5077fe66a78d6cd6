import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { type BootCmdline, parseBootCmdline } from '../../domain/metal/cmdline.ts';
import { second } from '../../domain/time.ts';
import { logLevelField, parseEnv } from '../../runtime/config.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../../runtime/lifecycle.ts';
import { parseDaemonConfig } from '../config.ts';
import { folderDisks, folderMachine } from '../ramdisk/disks/folder.ts';
import { realDisks, realMachine } from '../ramdisk/disks/real.ts';
import { type HandOver, handOverJump, startHandOver } from '../ramdisk/jump/after-jump.ts';
import { realJump } from '../ramdisk/jump/real-jump.ts';
import { type RamdiskOptions, startRamdisk } from '../ramdisk/start.ts';
import type { RunningDaemon } from '../run.ts';
import { crashAtName, crashHook, testOnlyName } from '../state/crash-points.ts';
import { readIfPresent } from '../state/files.ts';
import { productionOverlapMs } from '../trust/offered-trust.ts';
import { examples } from './common.ts';

interface RamdiskFlags {
  readonly cmdline: string;
  readonly root?: string;
  readonly disks?: string;
  readonly afterJump?: string;
  readonly plugins: string;
  readonly wait: number;
  readonly demonstrationOnlyRootOverlapMs?: number;
}

export function registerRamdisk(program: Command): void {
  const command = program
    .command('ramdisk')
    .description('One boot of one run: join by what the site agent asserts, then erase, write and start as commands say')
    .option('--cmdline <file or text>', "the kernel's command line", '/proc/cmdline')
    .option('--root <folder>', 'where this boot keeps its state (default: a new folder that goes with the process)')
    .option('--disks <folder>', 'for development: files in a folder in the place of this machine’s disks; nothing else is touched')
    .option('--after-jump <command>', 'for development, with --disks: what boot.kexec hands over to, in a shell')
    .option('--plugins <folder>', 'what driver.invoke may call, where this folder is there (docs/plugins.md)', ramdiskPlugins)
    .addOption(new Option('--wait <seconds>', 'how long to go on while the join is not answered').default(900).argParser(whole))
    .addOption(
      new Option(
        '--demonstration-only-root-overlap-ms <ms>',
        'for demonstrations: let a command root leave this soon after its last use, in place of 24 h',
      ).argParser(whole),
    )
    .action((flags: RamdiskFlags) => runProcess({ name: 'bcd', start: (context) => start(context, flags) }));
  examples(command, ['bcd ramdisk', 'bcd ramdisk --cmdline ./cmdline --disks ./disks --after-jump ./boot.sh']);
}

function whole(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new InvalidArgumentError('It must be a whole number above 0.');
  return Number(value);
}

async function start({ env, log, fail }: ProcessContext, flags: RamdiskFlags): Promise<RunningProcess> {
  parseEnv(
    z.object({ BETTER_COMPUTE_LOG_LEVEL: logLevelField, [testOnlyName]: z.string().optional(), [crashAtName]: z.string().optional() }),
    env,
  );
  const line = parseBootCmdline(await cmdlineText(flags.cmdline));
  const root = flags.root === undefined ? await mkdtemp(join(tmpdir(), 'bcd-ramdisk-')) : resolve(flags.root);
  let daemon: RunningDaemon | undefined;
  let follower: ChildProcess | undefined;
  const handOver = (to: HandOver): void => {
    void daemon?.stop().then(() => {
      follower = startHandOver(to);
      follower.once('exit', (code) => process.exit(code ?? 1));
    }, fail);
  };
  daemon = await startRamdisk({
    line,
    root,
    ...hardwareOf(flags, { line, root, handOver }),
    config: parseDaemonConfig('the ramdisk’s configuration', '{}'),
    plugins: await pluginsAt(flags.plugins),
    minOverlapMs: flags.demonstrationOnlyRootOverlapMs ?? productionOverlapMs,
    patienceMs: flags.wait * second,
    log,
    crash: crashHook(env),
    onFailed: fail,
  });
  return {
    addresses: {},
    async stop() {
      follower?.kill('SIGTERM');
      await daemon?.stop();
      if (flags.root === undefined && follower === undefined) await rm(root, { recursive: true, force: true });
    },
  };
}

/** As `npm run ramdisk -- --plugins` puts them there. */
const ramdiskPlugins = '/usr/lib/better-compute/plugins';

/** A ramdisk is built with plugins or without; that they can be trusted is asked at each call. */
async function pluginsAt(path: string): Promise<string | null> {
  const folder = resolve(path);
  const facts = await stat(folder).catch(() => undefined);
  return facts?.isDirectory() === true ? folder : null;
}

/** A file where there is one of that name; else the text itself. */
async function cmdlineText(text: string): Promise<string> {
  if (/\s|=/.test(text)) return text;
  const content = await readIfPresent(text, 64 * 1024);
  if (content !== undefined) return content.toString('utf8');
  throw new ControlError('NOT_FOUND', `there is no file ${text}`, { details: { reason: 'cmdline' } });
}

interface Around {
  readonly line: BootCmdline;
  readonly root: string;
  readonly handOver: (to: HandOver) => void;
}

function hardwareOf(
  { disks: folder, afterJump }: RamdiskFlags,
  { line, root, handOver }: Around,
): Pick<RamdiskOptions, 'disks' | 'machine' | 'doer'> {
  const scratch = join(root, 'scratch');
  if (folder === undefined) {
    if (afterJump !== undefined)
      throw new ControlError('INVALID_INPUT', '--after-jump is for development, and goes with --disks alone', {
        details: { reason: 'after-jump' },
      });
    return { disks: realDisks(), machine: () => realMachine(), doer: realJump({ scratch }) };
  }
  const disks = folderDisks(resolve(folder));
  const boot = { nodeId: line.nodeId, runId: line.runId, bootNonce: Buffer.from(line.bootNonce, 'hex') };
  // Without a program to go on with, the boot just ends.
  const doer = handOverJump({ disks, scratch, boot, command: afterJump ?? 'exit 0' }, handOver);
  return { disks, machine: () => folderMachine(resolve(folder)), doer };
}
