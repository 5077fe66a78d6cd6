/**
 * A site beside a live stack: a real `bcd site` with its boot server, fake controllers in a process of their own, and machines whose
 * network boots become real `bcd ramdisk` processes on files for disks, and their systems real `bcd run` processes.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { hostImage } from '../../cli/stack/demonstration/metal/image.ts';
import { createHardware } from '../../cli/stack/demonstration/metal/machine.ts';
import { machineOf, profileOf } from '../../cli/stack/demonstration/metal/profile.ts';
import { credential, type PowerEvent, startRack } from '../../cli/stack/demonstration/metal/rack.ts';
import { artefact } from '../../cli/stack/demonstration/metal/site.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { claimPort } from '../../scripts/lib/free-port.mjs';
import { type Bcd, type BcdEnd, startBcd } from '../daemon/bcd-process.ts';
import { eventually } from './eventually.ts';
import type { LiveStack } from './live-stack.ts';

export interface LiveSite {
  readonly machines: readonly string[];
  readonly siteId: string;
  readonly agent: string;
  /** Of the agent: its data, and its configuration, which names the boot server's port. */
  readonly folder: string;
  /** The document of a profile whose kernel and image are here. */
  readonly profile: Readonly<Record<string, unknown>>;
  /** What the controllers did to the power of a machine, in order: On and Off. */
  power(machine: string): readonly PowerEvent['power'][];
  /** Starts `bcd site`, and waits until it is connected. */
  start(): Promise<Bcd>;
  end(signal: NodeJS.Signals): Promise<BcdEnd>;
  stop(): Promise<void>;
}

export interface LiveSiteOptions {
  readonly machines: number;
  readonly rootOverlapMs: number;
  /** Of the ramdisk, and of the system that is written. */
  readonly plugins?: string;
  /** Of the site's agent. */
  readonly proxyAllow?: readonly string[];
}

const siteId = 'berlin';
const agent = 'site-agent-1';
const actor = 'test';

export async function startLiveSite(
  stack: LiveStack,
  { machines: count, rootOverlapMs, plugins, proxyAllow = [] }: LiveSiteOptions,
): Promise<LiveSite> {
  const folder = join(stack.home, 'nodes', agent);
  const artefacts = join(folder, 'artefacts');
  mkdirSync(artefacts, { recursive: true, mode: 0o700 });
  const kernel = artefact(artefacts, 'vmlinuz');
  const initramfs = artefact(artefacts, 'initramfs.gz');
  const httpPort = await claimPort({ port: 0, who: 'the boot server', setBy: 'this test' });
  const config = join(folder, 'config.json');
  writeFileSync(
    config,
    JSON.stringify({ site: { proxyAllow, boot: { host: '127.0.0.1', listen: '127.0.0.1', httpPort, folder: artefacts } } }),
  );
  const bootUrl = `http://127.0.0.1:${httpPort}`;
  const machines = Array.from({ length: count }, machineOf);
  const overlap = ['--demonstration-only-root-overlap-ms', String(rootOverlapMs)];
  const image = await hostImage();
  const basics = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '' };
  const hardware = new Map(
    machines.map((machine) => {
      const place = join(stack.home, 'metal', machine.name);
      mkdirSync(place, { recursive: true, mode: 0o700 });
      if (plugins !== undefined) {
        // As an image of its owner would bring it.
        mkdirSync(join(place, 'system'), { mode: 0o700 });
        writeFileSync(join(place, 'system', 'config.json'), JSON.stringify({ pluginsFolder: plugins }), { mode: 0o600 });
      }
      // The agent is killed on purpose: a machine that meets it down asks again.
      return [
        machine.name,
        createHardware({
          machine,
          folder: place,
          env: basics,
          bootUrl: () => bootUrl,
          rootOverlapMs,
          cabled: true,
          say: () => {},
          ...(plugins === undefined ? {} : { plugins }),
        }),
      ];
    }),
  );
  const events: PowerEvent[] = [];
  const rack = await startRack(machines, (event) => {
    events.push(event);
    hardware.get(event.name)?.power(event);
  });
  let running: Bcd | undefined;
  const site: LiveSite = {
    machines: machines.map(({ name }) => name),
    siteId,
    agent,
    folder,
    profile: profileOf({ site: { bootUrl, kernel, initramfs, stop: async () => {} }, image }),
    power: (machine) => events.filter(({ name }) => name === machine).map(({ power }) => power),
    async start() {
      const bcd = startBcd(['site', '--data-dir', folder, '--config', config, ...overlap]);
      running = bcd;
      await eventually(
        'the site agent is connected',
        async () => {
          if (bcd.child.exitCode !== null) throw new Error(`bcd site ended: ${bcd.log()}`);
          const status = await findStatus(folder);
          return status?.state === 'connected' && status.pid === bcd.child.pid;
        },
        60_000,
      );
      return bcd;
    },
    async end(signal) {
      if (running === undefined) throw new Error('the site agent does not run');
      return running.stop(signal);
    },
    async stop() {
      await Promise.all([...hardware.values()].map((one) => one.stop()));
      await running?.stop('SIGKILL');
      await rack.stop();
      image.close();
    },
  };
  try {
    await introduce(stack, site, { machines, addressOf: (name) => String(rack.controllers[name]?.address) });
    return site;
  } catch (error) {
    await site.stop();
    throw error;
  }
}

interface Introduced {
  readonly machines: readonly ReturnType<typeof machineOf>[];
  readonly addressOf: (machine: string) => string;
}

/** The agent joins, and the machines are known by their controllers. */
async function introduce({ api, machinesApi }: LiveStack, { folder }: LiveSite, { machines, addressOf }: Introduced): Promise<void> {
  const { join: joinString } = await api.createToken({ nodeId: agent, actor, lifetimeMs: 600_000, role: 'site', siteId });
  const joined = await startBcd(['join', '-', '--role', 'site', '--data-dir', folder], { input: joinString ?? '' }).ended;
  if (joined.code !== 0) throw new Error(`bcd join of the site agent: ${joined.stderr}`);
  const value = Buffer.from(JSON.stringify(credential)).toString('base64');
  for (const { name, macAddress } of machines) {
    await api.setSecret({ path: `bmc/${name}`, value, actor });
    const machine = { id: name, siteId, rack: 'r1', bmcAddress: addressOf(name), macAddresses: [macAddress] };
    await machinesApi.add({ machine, actor });
  }
}
