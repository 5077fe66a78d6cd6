/** The disks of this machine: /sys/block says what they are, their own tools erase them. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { codeOf } from '../../../domain/errors.ts';
import { type EraseCapabilities, noEraseCapabilities } from '../../../domain/metal/erase.ts';
import { runProgram } from '../../kinds/program.ts';
import { capabilitiesOfHdparm, capabilitiesOfNvme } from './capabilities.ts';
import type { DiskFacts, DiskHost, MachineFacts } from './disk-host.ts';
import { openDisk } from './file-handle.ts';

/** Not disks: loops, memory, optical drives, floppies, what is made of disks, and the single paths of an NVMe namespace. */
const notDisks = /^(?:loop|ram|zram|sr|fd|md|dm-|nbd|nvme\d+c\d+n)/;
const sectorBytes = 512;

/** @param root of the file system that is read; a test's copy or `/` */
export function realDisks({ root = '/', run = runProgram }: { root?: string; run?: DiskHost['tool'] } = {}): DiskHost {
  const path = ({ name }: Pick<DiskFacts, 'name'>): string => `/dev/${name}`;
  return {
    path,
    tool: run,
    async list() {
      const names = (await readdir(join(root, 'sys/block')).catch(() => [])).filter((name) => !notDisks.test(name)).sort();
      const disks = await Promise.all(names.map((name) => readDisk(root, name)));
      return disks.filter(({ sizeBytes }) => sizeBytes > 0);
    },
    open: (disk, mode) => openDisk(path(disk), mode),
    async capabilities(disk, signal) {
      const own = await driveCapabilities({ disk, path: path(disk), run }, signal);
      const discard = Number(await text(root, `sys/block/${disk.name}/queue/discard_max_bytes`));
      return { ...own, secureDiscard: discard > 0 };
    },
    async partitionsChanged(disk) {
      // A kernel that does not read it again now does so at the next boot.
      await run('blockdev', ['--rereadpt', path(disk)], AbortSignal.timeout(10_000)).catch(() => undefined);
    },
  };
}

async function driveCapabilities(
  { disk, path, run }: { disk: DiskFacts; path: string; run: DiskHost['tool'] },
  signal: AbortSignal,
): Promise<EraseCapabilities> {
  try {
    if (disk.transport === 'nvme') {
      const { status, stdout } = await run('nvme', ['id-ctrl', path, '--output-format=json'], signal);
      return status === 0 ? capabilitiesOfNvme(stdout) : noEraseCapabilities;
    }
    if (disk.transport !== 'sata') return noEraseCapabilities;
    const { status, stdout } = await run('hdparm', ['-I', path], signal);
    return status === 0 ? capabilitiesOfHdparm(stdout) : noEraseCapabilities;
  } catch (error) {
    // Without the tool there is what always works.
    if (codeOf(error) === 'UNSUPPORTED') return noEraseCapabilities;
    throw error;
  }
}

async function readDisk(root: string, name: string): Promise<DiskFacts> {
  const of = (file: string): Promise<string> => text(root, `sys/block/${name}/${file}`);
  const first = async (...files: string[]): Promise<string> => {
    for (const file of files) {
      const found = await of(file);
      if (found !== '') return found;
    }
    return '';
  };
  return {
    name,
    serial: (await first('device/serial', 'serial')) || (await unitSerial(root, name)),
    wwn: (await first('wwid', 'device/wwid')).toLowerCase().replace(/\s+/g, ' '),
    model: await of('device/model'),
    sizeBytes: Number(await of('size')) * sectorBytes,
    transport: await transportOf(root, name),
    rotational: (await of('queue/rotational')) === '1',
    removable: (await of('removable')) === '1',
    logicalBlockBytes: Number(await of('queue/logical_block_size')) || sectorBytes,
  };
}

/** SCSI and ATA: vital product data, page 80h, behind a header of four bytes. */
async function unitSerial(root: string, name: string): Promise<string> {
  try {
    const page = await readFile(join(root, `sys/block/${name}/device/vpd_pg80`));
    return page
      .subarray(4)
      .toString('latin1')
      .replace(/[^\x20-\x7e]/g, '')
      .trim();
  } catch {
    return '';
  }
}

const transports: readonly (readonly [RegExp, string])[] = [
  [/\/nvme\d/, 'nvme'],
  [/\/virtio\d/, 'virtio'],
  [/\/usb\d/, 'usb'],
  [/\/ata\d/, 'sata'],
  [/\/(?:end_device|sas_)/, 'sas'],
];

async function transportOf(root: string, name: string): Promise<string> {
  const target = await readlink(join(root, 'sys/block', name)).catch(() => '');
  return transports.find(([pattern]) => pattern.test(`/${target}`))?.[1] ?? 'scsi';
}

/** Empty when there is no such file. */
async function text(root: string, path: string): Promise<string> {
  try {
    return (await readFile(join(root, path), 'utf8')).trim();
  } catch {
    return '';
  }
}

/** What the firmware and the kernel say of this machine. */
export async function realMachine(root = '/'): Promise<MachineFacts> {
  const names = (await readdir(join(root, 'sys/class/net')).catch(() => [])).filter((name) => name !== 'lo').sort();
  const addresses = await Promise.all(names.map((name) => text(root, `sys/class/net/${name}/address`)));
  return {
    systemUuid: (await text(root, 'sys/class/dmi/id/product_uuid')).toLowerCase(),
    systemSerial: await text(root, 'sys/class/dmi/id/product_serial'),
    macAddresses: addresses.map((address) => address.toLowerCase()).filter((address) => /^(?:[0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(address)),
    memoryBytes: totalmem(),
    cpus: cpus().length,
  };
}
