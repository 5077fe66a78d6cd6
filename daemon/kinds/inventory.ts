/** inventory.refresh: what the kernel says of the hardware and the network, from /proc and /sys; nothing is run. */
import { readdir, readFile } from 'node:fs/promises';
import { arch, cpus, hostname, networkInterfaces, release, totalmem } from 'node:os';
import { join } from 'node:path';
import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  type HardwareClaimsSchema,
  type HardwareInventorySchema,
  type InventoryRefresh,
  InventoryReportSchema,
} from '../../proto/index.ts';
import { type KindHandler, succeeded } from './handler.ts';

export interface HostFiles {
  /** Root of the file system that is read; a test's copy or `/`. */
  readonly root: string;
  readonly readBootId: () => Promise<string>;
}

type Inventory = MessageInitShape<typeof HardwareInventorySchema>;

/** A section is a part that can be asked for alone; none named: all. */
const sections = {
  system: async (host: HostFiles): Promise<Inventory> => ({
    hostname: hostname(),
    kernel: release(),
    architecture: arch(),
    osName: await osName(host),
    bootId: await host.readBootId(),
    machineId: await text(host, 'etc/machine-id'),
  }),
  cpu: async (): Promise<Inventory> => ({ cpus: cpus().length, cpuModel: cpus()[0]?.model ?? '' }),
  memory: async (): Promise<Inventory> => ({ memoryBytes: BigInt(totalmem()) }),
  network: async (): Promise<Inventory> => ({ interfaces: interfaces() }),
  storage: async (host: HostFiles): Promise<Inventory> => ({ blockDevices: await blockDevices(host) }),
} as const;

export function inventoryHandler(host: HostFiles): KindHandler {
  return {
    async run(payload, context) {
      const asked = (payload as InventoryRefresh).sections;
      const hardware = await collect(host, asked);
      return succeeded(InventoryReportSchema, { hardware, collectedAtMs: BigInt(Math.round(context.now())) });
    },
  };
}

async function collect(host: HostFiles, asked: readonly string[]): Promise<Inventory> {
  // A section of a newer control plane is left out: the report shows what there is.
  const wanted = Object.entries(sections).filter(([name]) => asked.length === 0 || asked.includes(name));
  const parts = await Promise.all(wanted.map(([, read]) => read(host)));
  return Object.assign({}, ...parts) as Inventory;
}

/** What Join tells of the machine (JOIN-009). */
export async function hardwareClaims(host: HostFiles): Promise<MessageInitShape<typeof HardwareClaimsSchema>> {
  return {
    hostname: hostname(),
    machineId: await text(host, 'etc/machine-id'),
    // Readable by root only on most machines; a claim, not a proof.
    systemUuid: await text(host, 'sys/class/dmi/id/product_uuid'),
    systemSerial: await text(host, 'sys/class/dmi/id/product_serial'),
    macAddresses: interfaces()
      .map((one) => one.macAddress)
      .filter((mac) => mac !== ''),
    architecture: arch(),
    kernel: release(),
    cpus: cpus().length,
    memoryBytes: BigInt(totalmem()),
  };
}

/** Empty when there is no such file, or this user may not read it. */
async function text({ root }: HostFiles, path: string): Promise<string> {
  try {
    return (await readFile(join(root, path), 'utf8')).trim().slice(0, 1024);
  } catch {
    return '';
  }
}

async function osName(host: HostFiles): Promise<string> {
  const release = await text(host, 'etc/os-release');
  return /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(release)?.[1] ?? '';
}

function interfaces(): { name: string; macAddress: string; addresses: string[] }[] {
  return Object.entries(networkInterfaces())
    .filter(([name]) => name !== 'lo')
    .map(([name, all = []]) => ({ name, macAddress: all[0]?.mac ?? '', addresses: all.map((one) => one.address) }));
}

const sectorBytes = 512n;

async function blockDevices(host: HostFiles): Promise<{ name: string; sizeBytes: bigint; model: string; serial: string }[]> {
  let names: string[];
  try {
    names = await readdir(join(host.root, 'sys/block'));
  } catch {
    return [];
  }
  const real = names.filter((name) => !/^(?:loop|ram|zram|dm-)/.test(name)).sort();
  return Promise.all(
    real.map(async (name) => {
      const of = (file: string): Promise<string> => text(host, `sys/block/${name}/${file}`);
      const sectors = await of('size');
      return {
        name,
        sizeBytes: /^\d+$/.test(sectors) ? BigInt(sectors) * sectorBytes : 0n,
        model: await of('device/model'),
        serial: await of('device/serial'),
      };
    }),
  );
}
