/**
 * What metal-fleet has in the place of a data centre, in one process: controllers, machines, and the server of their image. A machine that
 * is powered on from the network asks the boot server, runs the real ramdisk over files, and goes on as the system that it wrote: the
 * daemon's own code throughout. Its wants as one JSON object in a file; where the controllers are, as one JSON line on standard output.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { hostImage } from '../../cli/stack/demonstration/metal/image.ts';
import { credential, type RackMachine } from '../../cli/stack/demonstration/metal/rack.ts';
import { parseDaemonConfig } from '../../daemon/config.ts';
import { joinNode } from '../../daemon/join.ts';
import { folderDisks, folderMachine } from '../../daemon/ramdisk/disks/folder.ts';
import { type HandOver, handOverJump } from '../../daemon/ramdisk/jump/after-jump.ts';
import { startRamdisk } from '../../daemon/ramdisk/start.ts';
import { type RunningDaemon, startDaemon } from '../../daemon/run.ts';
import { kernelBootId } from '../../daemon/state/boot-id.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { productionOverlapMs } from '../../daemon/trust/offered-trust.ts';
import { parseBootCmdline } from '../../domain/metal/cmdline.ts';
import { minute, second } from '../../domain/time.ts';
import { parseJoinBundle } from '../../pki/enroll/index.ts';
import { asMachine } from '../fakes/bmc/own-machine.ts';
import { startFakeBmc } from '../fakes/bmc/server.ts';

interface Wants {
  readonly root: string;
  readonly bootUrl: string;
  readonly machines: readonly RackMachine[];
}

const diskBytes = 12 * 1024 * 1024;
const say = (error: unknown): void => void process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
const log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: (facts: object) => say(JSON.stringify(facts)) };
const config = parseDaemonConfig('a machine of the bench', '{}');
const common = { config, minOverlapMs: productionOverlapMs, log, crash: neverCrash, onFailed: say };

class Machine {
  readonly #machine: RackMachine;
  readonly #folder: string;
  readonly #bootUrl: string;
  #running: RunningDaemon | null = null;
  /** What was asked of the power comes one after another. */
  #work: Promise<unknown> = Promise.resolve();
  #boots = 0;

  constructor(machine: RackMachine, { root, bootUrl }: Wants) {
    this.#machine = machine;
    this.#bootUrl = bootUrl;
    this.#folder = join(root, machine.name);
    const { serial, uuid, macAddress } = machine;
    const write = (name: string, value: object): void => writeFileSync(join(this.#folder, 'disks', name), JSON.stringify(value));
    mkdirSync(join(this.#folder, 'disks'), { recursive: true });
    write('machine.json', { systemUuid: uuid, systemSerial: serial, macAddresses: [macAddress], memoryBytes: 2 ** 36, cpus: 8 });
    write('disk0.json', { serial: `${serial}-D0`, model: 'Bench', transport: 'nvme', sizeBytes: diskBytes });
  }

  power(power: 'On' | 'Off', target: string): void {
    const boot = ++this.#boots;
    this.#then(async () => {
      await this.#running?.stop();
      this.#running = null;
      if (power === 'On' && target !== 'Hdd') await this.#bootNetwork(boot);
    });
  }

  #then(step: () => Promise<void>): void {
    this.#work = this.#work.then(step).catch((error: unknown) => say(`${this.#machine.name}: ${String(error)}`));
  }

  async #bootNetwork(boot: number): Promise<void> {
    while (boot === this.#boots) {
      const answer = await fetch(`${this.#bootUrl}/ipxe/${this.#machine.macAddress}`);
      const line = /^kernel .* initrd=initramfs (.*) \|\| goto again$/m.exec(await answer.text())?.[1];
      if (line !== undefined) return this.#startRamdisk(line);
      await sleep(second);
    }
  }

  async #startRamdisk(text: string): Promise<void> {
    const line = parseBootCmdline(text);
    const root = join(this.#folder, `boot-${this.#boots}`);
    const disks = folderDisks(join(this.#folder, 'disks'));
    const machine = () => folderMachine(join(this.#folder, 'disks'));
    const boot = { nodeId: line.nodeId, runId: line.runId, bootNonce: Buffer.from(line.bootNonce, 'hex') };
    const doer = handOverJump({ disks, scratch: join(root, 'scratch'), boot, command: '' }, (to) =>
      this.#then(() => this.#startSystem(to)),
    );
    mkdirSync(root, { recursive: true });
    this.#running = await startRamdisk({ ...common, line, root, disks, machine, doer, plugins: null, patienceMs: 10 * minute });
  }

  async #startSystem({ seedFolder }: HandOver): Promise<void> {
    await this.#running?.stop();
    const dataDir = join(this.#folder, 'system');
    await joinNode({
      dataDir,
      bundle: parseJoinBundle(readFileSync(join(seedFolder, 'bc-join'), 'utf8').trim()),
      role: 'node',
      attestor: 'provisioned',
      evidence: null,
      replace: true,
      patienceMs: 10 * minute,
      host: { root: '/', readBootId: () => kernelBootId.read() },
      random: Math.random,
      now: Date.now,
      say: () => undefined,
      sleep: (ms) => sleep(ms),
    });
    this.#running = await startDaemon({ ...common, dataDir, simulateReboot: true });
    rmSync(join(this.#folder, 'disks', 'disk0.img'), { force: true });
  }
}

const wants = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as Wants;
const image = await hostImage();
const controllers: Record<string, { address: string; pinSha256: string }> = {};
for (const machine of wants.machines) {
  const hardware = new Machine(machine, wants);
  const onPower = (power: 'On' | 'Off', boot: { target: string }): void => hardware.power(power, boot.target);
  const bmc = await startFakeBmc({ ...asMachine('minimal', machine), credential, power: 'Off', machine: { onPower } });
  controllers[machine.name] = { address: bmc.address, pinSha256: bmc.pinSha256 };
}
process.stdout.write(`${JSON.stringify({ controllers, image: { url: image.url, sha256: image.sha256, bytes: image.bytes } })}\n`);
// Whoever started it is gone.
process.stdin.on('end', () => process.exit(0)).resume();
