/**
 * A machine in QEMU behind a management controller: power on starts the emulator from the network or the disk, power off ends it over
 * QMP. Always emulated in software (-accel tcg): a /dev/kvm that exists is not always one that works.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type FakeBmc, startFakeBmc } from '../../fakes/bmc/server.ts';

export const macAddress = '52:54:00:12:34:56';
export const systemUuid = '6a2f41a3-c54c-fce8-32d2-0324e1c32e22';

export interface QemuMachine {
  readonly bmc: FakeBmc;
  /** What its console said so far. */
  console(): string;
  /** Resolves when its console says this. */
  untilSaid(what: RegExp, withinMs: number): Promise<void>;
  stop(): Promise<void>;
}

export interface QemuOptions {
  readonly folder: string;
  readonly disk: string;
  readonly serial: string;
  /** What iPXE of the card is handed by DHCP. */
  readonly bootUrl: string;
  readonly credential: { readonly username: string; readonly password: string };
}

export async function startQemuMachine(options: QemuOptions): Promise<QemuMachine> {
  const qmp = join(options.folder, 'qmp.sock');
  const log = createWriteStream(join(options.folder, 'console.log'));
  let said = '';
  let vm: ChildProcess | undefined;
  const off = async (): Promise<void> => {
    const running = vm;
    vm = undefined;
    if (running === undefined || running.exitCode !== null) return;
    const ended = new Promise((resolve) => running.once('exit', resolve));
    await quit(qmp).catch(() => running.kill('SIGKILL'));
    await ended;
  };
  const on = async (target: string): Promise<void> => {
    await off();
    const started = spawn('qemu-system-x86_64', argumentsOf(options, { qmp, fromNetwork: target !== 'Hdd' && target !== 'None' }), {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    vm = started;
    for (const stream of [started.stdout, started.stderr])
      stream.on('data', (chunk: Buffer) => {
        said += chunk.toString('latin1');
        log.write(chunk);
      });
  };
  const bmc = await startFakeBmc({
    tree: 'minimal',
    credential: options.credential,
    power: 'Off',
    machine: { onPower: (power, boot) => (power === 'On' ? on(boot.target) : off()) },
  });
  return {
    bmc,
    console: () => said,
    async untilSaid(what, withinMs) {
      const until = performance.now() + withinMs;
      while (!what.test(said)) {
        if (performance.now() > until)
          throw new Error(`the console did not say ${what} within ${withinMs / 1000} s; it ends in: ${said.slice(-1500)}`);
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    },
    async stop() {
      await off();
      await bmc.close();
      log.end();
    },
  };
}

function argumentsOf({ disk, serial, bootUrl }: QemuOptions, { qmp, fromNetwork }: { qmp: string; fromNetwork: boolean }): string[] {
  const flags = `
    -accel tcg -cpu max -M q35 -m 1280 -nographic -serial mon:stdio -boot ${fromNetwork ? 'order=c,once=n' : 'order=c'} -uuid ${systemUuid}
    -netdev user,id=n0,bootfile=${bootUrl} -device virtio-net-pci,netdev=n0,mac=${macAddress}
    -drive file=${disk},if=none,id=d0,format=raw,cache=unsafe -device virtio-blk-pci,drive=d0,serial=${serial}
    -qmp unix:${qmp},server=on,wait=off`;
  return flags.trim().split(/\s+/);
}

/** The power cord, over QMP. */
function quit(path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('error', reject);
    socket.once('close', () => resolve());
    socket.write('{"execute":"qmp_capabilities"}\n{"execute":"quit"}\n');
    socket.resume();
  });
}
