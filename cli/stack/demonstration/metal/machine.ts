/**
 * A machine of the demonstration, as hardware: files for disks, a network card that asks the boot server, and processes in the place of
 * what it boots. Its controller says when it is turned on and from where it is to boot; everything behind that is the real `bcd`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { second } from '../../../../domain/time.ts';
import { shellQuoted } from '../../../../runtime/shell.ts';
import { entryOf } from '../../entries.ts';
import type { PowerEvent, RackMachine } from './rack.ts';

export interface HardwareOptions {
  readonly machine: RackMachine;
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  /** Of the site's boot server. */
  readonly bootUrl: () => string;
  readonly rootOverlapMs: number;
  /** false: its cable is out, and it never reaches the boot server. */
  readonly cabled: boolean;
  /** What its ramdisk was built with. */
  readonly plugins?: string;
  readonly say: (line: string) => void;
}

export interface Hardware {
  power(event: PowerEvent): void;
  stop(): Promise<void>;
}

const diskBytes = 24 * 1024 * 1024;
const entry = entryOf('daemon/main');

export function createHardware(options: HardwareOptions): Hardware {
  const { machine, folder } = options;
  const [disks, system] = [join(folder, 'disks'), join(folder, 'system')];
  makeDisks(machine, disks);
  let running: ChildProcess | null = null;
  /** Counts what was booted: an answer for an earlier boot starts nothing any more. */
  let boots = 0;

  const halt = async (): Promise<void> => {
    boots += 1;
    const child = running;
    running = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
    kill(child, 'SIGTERM');
    const timer = setTimeout(() => kill(child, 'SIGKILL'), 10 * second);
    await ended;
    clearTimeout(timer);
  };
  const start = (name: string, args: readonly string[]): void => {
    const log = createWriteStream(join(folder, `${name}.log`), { flags: 'a' });
    running = spawn(process.execPath, [...entry.args, ...args], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...options.env, BETTER_COMPUTE_EXIT_WITH_PARENT: '1' },
      // With all that it hands over to.
      detached: true,
    });
    running.stdin?.on('error', () => undefined);
    running.stdout?.pipe(log);
    running.stderr?.pipe(log);
  };
  const overlap = ['--demonstration-only-root-overlap-ms', String(options.rootOverlapMs)];
  const bootDisk = (): void => {
    if (existsSync(join(system, 'identity.json'))) start('system', ['run', '--data-dir', system, ...overlap]);
  };
  const bootNetwork = async (): Promise<void> => {
    const mine = boots;
    const script = await askBootServer(options, () => mine === boots);
    if (script === null || mine !== boots) return;
    const line = /^kernel .* initrd=initramfs (.*) \|\| goto again$/m.exec(script)?.[1];
    if (line === undefined) return bootDisk();
    const boot = join(folder, `boot-${boots}`);
    mkdirSync(boot, { recursive: true, mode: 0o700 });
    writeFileSync(join(boot, 'cmdline'), line, { mode: 0o600 });
    const args = ['--cmdline', join(boot, 'cmdline'), '--disks', disks, '--root', boot, '--after-jump', handOver(system, overlap)];
    if (options.plugins !== undefined) args.push('--plugins', options.plugins);
    start(`ramdisk-${boots}`, ['ramdisk', ...args, ...overlap]);
  };
  return {
    power: ({ power, target }) =>
      void halt().then(async () => {
        if (power === 'Off') return;
        boots += 1;
        if (target === 'Hdd') return bootDisk();
        if (options.cabled) await bootNetwork();
      }),
    stop: halt,
  };
}

function makeDisks({ serial, uuid, macAddress }: RackMachine, folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const write = (name: string, value: object): void => writeFileSync(join(folder, name), JSON.stringify(value));
  write('machine.json', { systemUuid: uuid, systemSerial: serial, macAddresses: [macAddress], memoryBytes: 2 ** 36, cpus: 8 });
  write('disk0.json', { serial: `${serial}-D0`, model: 'Demonstration', transport: 'nvme', sizeBytes: diskBytes });
}

function kill(child: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, signal);
  } catch {
    // It has ended by itself.
  }
}

/** In a shell, where a kernel would start what is on the disk: the system joins with what it finds there, and stays. */
function handOver(system: string, overlap: readonly string[]): string {
  const bcd = [process.execPath, ...entry.args].map(shellQuoted).join(' ');
  const folder = shellQuoted(system);
  const join_ = `${bcd} join --replace --attestor provisioned --wait 120 --data-dir ${folder} @"$BETTER_COMPUTE_SEED/bc-join"`;
  return `${join_} && exec ${bcd} run --data-dir ${folder} ${overlap.join(' ')}`;
}

/** As iPXE does: again and again, for as long as it is told to wait. null: it was turned off meanwhile. */
async function askBootServer({ bootUrl, machine, say }: HardwareOptions, isOn: () => boolean): Promise<string | null> {
  for (;;) {
    if (!isOn()) return null;
    try {
      const answer = await fetch(`${bootUrl()}/ipxe/${machine.macAddress}`);
      const script = await answer.text();
      if (/^kernel /m.test(script) || /boot the local disk/.test(script)) return script;
    } catch (error) {
      say(`${machine.name}: the boot server does not answer: ${error instanceof Error ? error.message : String(error)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, second));
  }
}
