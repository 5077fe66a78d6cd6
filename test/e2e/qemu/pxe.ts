/**
 * `npm run e2e:pxe`: firmware that nobody here wrote, on a network of its own with a DHCP server that knows of no boot server, finds the
 * site agent's by proxyDHCP: iPXE of a BIOS machine its script, UEFI its loader and then, as iPXE, its script. A machine under
 * maintenance is told to wait; one that may boot its disk hears nothing and boots it. Skipped by name where something is missing.
 *
 *   namespace site: bridge (10.77.0.1, boot server) ─ taps of the machines          namespace dhcp: dnsmasq (10.77.0.2)
 *                                                   └─ veth ─────────────────────────────────┘
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { second } from '../../../domain/time.ts';
import { hasProgram } from '../../ramdisk/stage.ts';

const siteAddress = '10.77.0.1';
const firmware = '/usr/share/OVMF/OVMF_CODE_4M.fd';
const firmwareVariables = '/usr/share/OVMF/OVMF_VARS_4M.fd';
const needed = ['qemu-system-x86_64', 'dnsmasq', 'ip', 'apt-get', 'dpkg-deb'];

const startedAt = performance.now();
const say = (text: string): void =>
  void process.stderr.write(`${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(6)} s  ${text}\n`);

interface Line {
  readonly message?: string;
  readonly facts?: { readonly macAddress?: string; readonly file?: string; readonly vendorClass?: string; readonly door?: string };
  readonly ready?: Readonly<Record<string, string>>;
}

const id = randomBytes(3).toString('hex');
const names = { site: `bc-site-${id}`, dhcp: `bc-dhcp-${id}` };
const ip = (...args: string[]): void => void execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] });
const inside = (namespace: string, command: string[]): string[] => ['netns', 'exec', namespace, ...command];

const machines = [
  { nodeId: 'bios', mac: '52:54:00:77:00:01', answer: 'ramdisk', uefi: false },
  { nodeId: 'uefi', mac: '52:54:00:77:00:02', answer: 'ramdisk', uefi: true },
  { nodeId: 'held', mac: '52:54:00:77:00:03', answer: 'hold', uefi: false },
  { nodeId: 'free', mac: '52:54:00:77:00:04', answer: 'local', uefi: false },
] as const;

function makeNetwork(): void {
  for (const name of Object.values(names)) ip('netns', 'add', name);
  const site = ['-n', names.site];
  ip(...site, 'link', 'add', 'br0', 'type', 'bridge');
  ip(...site, 'addr', 'add', `${siteAddress}/24`, 'brd', '10.77.0.255', 'dev', 'br0');
  ip(...site, 'link', 'add', 'to-dhcp', 'type', 'veth', 'peer', 'name', 'to-site', 'netns', names.dhcp);
  ip(...site, 'link', 'set', 'to-dhcp', 'master', 'br0', 'up');
  for (const [at] of machines.entries()) {
    ip(...site, 'tuntap', 'add', `tap${at}`, 'mode', 'tap');
    ip(...site, 'link', 'set', `tap${at}`, 'master', 'br0', 'up');
  }
  ip(...site, 'link', 'set', 'br0', 'up');
  ip(...site, 'link', 'set', 'lo', 'up');
  ip('-n', names.dhcp, 'addr', 'add', '10.77.0.2/24', 'dev', 'to-site');
  ip('-n', names.dhcp, 'link', 'set', 'to-site', 'up');
}

function start(namespace: string, command: string[], onLine: (line: string) => void): ChildProcess {
  const child = spawn('ip', inside(namespace, command), { stdio: ['pipe', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) {
    let rest = '';
    stream?.on('data', (chunk: Buffer) => {
      const pieces = (rest + chunk.toString('latin1')).split(/\r?\n/);
      rest = pieces.pop() ?? '';
      for (const piece of pieces) onLine(piece);
    });
  }
  return child;
}

async function until(what: string, isSo: () => boolean, withinMs = 240 * second): Promise<void> {
  const end = performance.now() + withinMs;
  while (!isSo()) {
    if (performance.now() > end) throw new Error(`it did not come to: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  say(what);
}

/** Debian's iPXE for UEFI. */
function loaderIn(folder: string): string {
  execFileSync('apt-get', ['download', 'ipxe'], { cwd: folder, stdio: 'ignore' });
  execFileSync('sh', ['-c', 'dpkg-deb -x ipxe_*.deb ipxe'], { cwd: folder, stdio: 'ignore' });
  return join(folder, 'ipxe/usr/lib/ipxe/snponly.efi');
}

function machineArguments(folder: string, at: number): string[] {
  const { nodeId, mac, uefi } = machines[at] as (typeof machines)[number];
  const disk = join(folder, `${nodeId}.img`);
  writeFileSync(disk, '');
  truncateSync(disk, 16 * 1024 * 1024);
  const variables = join(folder, `${nodeId}.fd`);
  if (uefi) copyFileSync(firmwareVariables, variables);
  // Without a ROM the card is driven by the firmware itself, whose PXE client is not iPXE.
  const own = uefi ? `-drive if=pflash,format=raw,readonly=on,file=${firmware} -drive if=pflash,format=raw,file=${variables}` : '';
  const card = `virtio-net-pci,netdev=n0,mac=${mac}${uefi ? ',romfile=' : ''}`;
  const line = `qemu-system-x86_64 -accel tcg -cpu max -M q35 -m 512 -nographic -no-reboot -boot order=nc ${own}
    -netdev tap,id=n0,ifname=tap${at},script=no,downscript=no -device ${card} -drive file=${disk},if=virtio,format=raw`;
  return line.trim().split(/\s+/);
}

async function story(folder: string, cleanUps: (() => unknown)[]): Promise<Record<string, unknown>> {
  const loaders = { 'snponly.efi': loaderIn(folder) };
  cleanUps.push(() => Object.values(names).forEach((name) => ip('netns', 'del', name)));
  makeNetwork();
  const running = (child: ChildProcess): ChildProcess => {
    const exited = new Promise((resolve) => child.once('exit', resolve));
    cleanUps.push(() => (child.kill('SIGKILL'), exited));
    return child;
  };
  const leases: string[] = [];
  const dhcp =
    'dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --interface=to-site --bind-interfaces --log-dhcp --log-facility=-';
  const files = [`--dhcp-leasefile=${join(folder, 'leases')}`, `--pid-file=${join(folder, 'dnsmasq.pid')}`, '--user=root'];
  running(start(names.dhcp, [...dhcp.split(' '), '--dhcp-range=10.77.0.100,10.77.0.199,1h', ...files], (line) => leases.push(line)));
  const wanted = join(folder, 'wanted.json');
  writeFileSync(wanted, JSON.stringify({ address: siteAddress, loaders, machines }));
  const said: Line[] = [];
  const program = fileURLToPath(new URL('./pxe-site-child.ts', import.meta.url));
  const site = start(names.site, [process.execPath, '--import=tsx', program, wanted], (line) => {
    if (line.startsWith('{')) said.push(JSON.parse(line) as Line);
    else process.stderr.write(`${line}\n`);
  });
  running(site);
  await until('the boot server listens', () => said.some(({ ready }) => ready !== undefined));

  const namedTo = (mac: string) =>
    said
      .filter(({ message, facts }) => message === 'a machine was named what to boot' && facts?.macAddress === mac)
      .map(({ facts }) => facts);
  const wasTold = (mac: string, message: string) => said.some((line) => line.message === message && line.facts?.macAddress === mac);
  for (const [at, { nodeId, mac, answer, uefi }] of machines.entries()) {
    let console = '';
    const vm = running(start(names.site, machineArguments(folder, at), (line) => (console += `${line}\n`)));
    try {
      if (answer === 'ramdisk') await until(`${nodeId}: was handed its script`, () => wasTold(mac, 'a machine was handed its script'));
      if (answer === 'hold') await until(`${nodeId}: was told to wait`, () => wasTold(mac, 'a machine was told what to boot'));
      if (answer === 'local') {
        await until(`${nodeId}: goes to its disk`, () => /Booting from Hard Disk/.test(console));
        assert.ok(
          leases.some((line) => line.includes(mac) && line.includes('DHCPOFFER')),
          'it had asked, and got an address',
        );
      }
    } catch (error) {
      process.stderr.write(`${console.slice(-2_000)}\n${leases.slice(-40).join('\n')}\n${JSON.stringify(said.slice(-10))}\n`);
      throw error;
    }
    const port = said
      .find(({ ready }) => ready !== undefined)
      ?.ready?.['bootHttp']?.split(':')
      .at(-1);
    const script = `http://${siteAddress}:${port}/ipxe/${mac}`;
    const files = [...new Set(namedTo(mac).map((facts) => facts?.file))];
    assert.deepEqual(files, answer === 'local' ? [] : uefi ? ['snponly.efi', script] : [script]);
    vm.kill('SIGKILL');
  }
  return { passed: true, named: machines.map(({ nodeId, mac }) => ({ nodeId, named: namedTo(mac) })) };
}

const missing = [...needed.filter((name) => !hasProgram(name)), ...[firmware].filter((path) => !existsSync(path))];
if (process.getuid?.() !== 0) missing.push('root, for network namespaces');
if (missing.length > 0) {
  const hint = 'apt-get install --no-install-recommends qemu-system-x86 ipxe-qemu ovmf dnsmasq-base iproute2';
  process.stdout.write(`${JSON.stringify({ skipped: true, missing, hint })}\n`);
} else {
  const folder = mkdtempSync(join(tmpdir(), 'bc-pxe-'));
  const cleanUps: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
  const ended = new Promise<never>((_resolve, reject) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => reject(new Error(`ended by ${signal}`)));
  });
  try {
    process.stdout.write(`${JSON.stringify(await Promise.race([story(folder, cleanUps), ended]), null, 2)}\n`);
  } catch (error) {
    process.stderr.write(`error: ${error instanceof Error ? error.stack : String(error)}\n`);
    process.stdout.write(`${JSON.stringify({ passed: false })}\n`);
    process.exitCode = 1;
  } finally {
    for (const cleanUp of cleanUps.toReversed()) await cleanUp();
  }
}
