/**
 * The boot server of a site: what its machines start from (DMN, KIND-006). HTTP always, TFTP where the owner says so.
 *
 * Purpose: a machine that a run waits for starts the ramdisk and nothing else; every other machine under maintenance waits; the rest boot
 * their disks. Each answer is a row of one table (answers.ts).
 *
 * Invariants: a machine with an entry, or told to hold, is never sent to its disk (M6) · an entry is durable before its command
 * is done, used before its assertion goes out · no file leaves but under its checksum · a token is in memory and on the wire to its
 * machine alone.
 *
 * Threat model: the provisioning network belongs to whoever is on it. A hostile machine there may read what other machines are sent
 * and speak with their addresses: so a token counts once, a second key with it is refused and said (M68), and the ramdisk is
 * believed for what it proves to the control plane, never for having been booted from here.
 *
 * What it does not do: give addresses (the site's own DHCP server does; beside it, where the owner says so, proxy-dhcp.ts names loader and
 * script), HTTPS (iPXE as distributed has none), choosing what a machine should boot (commands do), keeping a machine off its disk
 * while this agent is down: firmware falls back by itself, which is why a run sets the boot target of its controller too.
 */
import type { Server } from 'node:http';
import { isIP } from 'node:net';
import { listenOn, showAddress } from '../../../runtime/ports.ts';
import type { AgentLog } from '../../agent/log.ts';
import type { BootConfig } from '../config.ts';
import { openArtefactFolder } from './artefacts.ts';
import { type BootDesk, createBootDesk } from './desk.ts';
import { createBootHttp } from './http.ts';
import type { BootPorts, SiteAgent } from './ports.ts';
import { listenProxyDhcp } from './proxy-dhcp.ts';
import { openBootStore } from './store.ts';
import { listenTftp } from './tftp.ts';

export interface BootServerOptions {
  readonly config: BootConfig;
  /** Of the records; the server's own. */
  readonly stateFolder: string;
  /** The machine's clock, until an agent knows better. */
  readonly wallMs: () => number;
  readonly log: AgentLog;
}

export interface BootServer {
  readonly desk: BootDesk;
  /** http://host:port as machines reach it. */
  readonly baseUrl: string;
  /** Where it listens. */
  readonly addresses: Readonly<Record<string, string>>;
  /** Whom it speaks for from now on; null: nobody. */
  attach(agent: SiteAgent | null): void;
  close(): Promise<void>;
}

/** @throws PORT_TAKEN; what the file system does */
export async function createBootServer({ config, stateFolder, wallMs, log }: BootServerOptions): Promise<BootServer> {
  const store = await openBootStore(stateFolder, (err) =>
    log.error({ err }, 'a record of the boot server does not read back: machines that nothing is known of are made to wait'),
  );
  let agent: SiteAgent | null = null;
  let baseUrl = '';
  const ports: BootPorts = {
    config,
    store,
    artefacts: openArtefactFolder(config.folder),
    baseUrl: () => baseUrl,
    agent: () => agent,
    now: () => agent?.now() ?? wallMs(),
    log,
  };
  const desk = createBootDesk(ports);
  const http = createBootHttp(ports, desk);
  const at = await listenOn(http, { host: config.listen, port: config.httpPort, who: 'the boot server', setBy: 'site.boot.httpPort' });
  baseUrl = `http://${isIP(config.host) === 6 ? `[${config.host}]` : config.host}:${at.port}`;
  const beside: Beside[] = [];
  const close = async (): Promise<void> => {
    for (const one of beside.splice(0).toReversed()) await one.close();
    await closeHttp(http);
  };
  try {
    if (config.tftpPort !== undefined) beside.push(await listenTftp(ports, config.tftpPort));
    if (config.proxyDhcp !== undefined) beside.push(await listenProxyDhcp(ports, desk, config.proxyDhcp));
  } catch (error) {
    await close();
    throw error;
  }
  const addresses = Object.assign({ bootHttp: showAddress(at) }, ...beside.map((one) => one.addresses)) as Record<string, string>;
  log.info({ baseUrl, ...addresses }, 'the boot server listens');
  return {
    desk,
    baseUrl,
    addresses,
    attach: (next) => void (agent = next),
    async close() {
      await close();
      await store.close();
    },
  };
}

/** What listens beside HTTP. */
interface Beside {
  readonly addresses: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

function closeHttp(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
