/**
 * A site agent: a daemon of role site, the same agent, journal and quorum as on any machine, with the kinds that it runs for the machines
 * of its site (KIND-006). Its boot server stands above the rounds of the daemon: while the agent is parked, renews or starts
 * anew, machines are still answered.
 */
import { join } from 'node:path';
import type { KindOfRole } from '../../domain/commands/kinds.ts';
import type { AgentLog } from '../agent/log.ts';
import type { DaemonConfig } from '../config.ts';
import { daemonUpgradeHandler, type UpgradePorts } from '../kinds/daemon-upgrade.ts';
import { driverInvokeHandler, type PluginPorts } from '../kinds/driver-invoke.ts';
import type { KindHandler } from '../kinds/handler.ts';
import { type HostFiles, inventoryHandler } from '../kinds/inventory.ts';
import { type LogSources, logsCollectHandler } from '../kinds/logs-collect.ts';
import { pluginsOf, type RoleHandlers, type RoundState } from '../round.ts';
import type { SecretPort } from '../secrets/port.ts';
import type { RefusalStore } from './bmc/credential-broker.ts';
import { createBmcHandlers } from './bmc/handlers.ts';
import { openRefusals } from './bmc/refusals-file.ts';
import type { BootDesk } from './boot/desk.ts';
import { createBootHandlers } from './boot/handlers.ts';
import { type BootServer, createBootServer } from './boot/server.ts';
import { type SiteConfig, siteSection } from './config.ts';
import { createProxyHandler } from './proxy/handler.ts';

export interface SitePorts {
  readonly config: SiteConfig;
  readonly host: HostFiles;
  readonly logs: LogSources;
  readonly upgrade: UpgradePorts | null;
  readonly plugins: PluginPorts | null;
  readonly secrets: SecretPort;
  /** Server time. */
  readonly now: () => number;
  readonly refusals: RefusalStore;
  /** null: without a boot server. */
  readonly desk: BootDesk | null;
}

/** One handler for each row of the kind table that is for a site agent (KIND-007). */
export const createSiteHandlers = (ports: SitePorts): Readonly<Record<KindOfRole<'site'>, KindHandler>> =>
  Object.freeze({
    'inventory.refresh': inventoryHandler(ports.host),
    'logs.collect': logsCollectHandler(ports.logs),
    'daemon.upgrade': daemonUpgradeHandler(ports.upgrade),
    'driver.invoke': driverInvokeHandler(ports.plugins),
    ...createBmcHandlers({ secrets: ports.secrets, config: ports.config.bmc, now: ports.now, refusals: ports.refusals }),
    ...createBootHandlers({ desk: ports.desk }),
    'site.httpProxy': createProxyHandler({ secrets: ports.secrets, allow: ports.config.proxyAllow }),
  });

export interface SiteAgentProcess {
  readonly addresses: Readonly<Record<string, string>>;
  /** null for an identity that is no site agent's: the machine's own kinds then. */
  roleHandlers(around: RoundState): RoleHandlers | null;
  close(): Promise<void>;
}

/** @throws PORT_TAKEN; DATA_CORRUPT when the file of refused logins does not read back */
export async function openSiteAgent({
  dataDir,
  config,
  log,
}: {
  readonly dataDir: string;
  readonly config: DaemonConfig;
  readonly log: AgentLog;
}): Promise<SiteAgentProcess> {
  const site = config.site ?? siteSection.parse({});
  const refusals = await openRefusals(dataDir);
  const boot: BootServer | null =
    site.boot === undefined
      ? null
      : await createBootServer({ config: site.boot, stateFolder: join(dataDir, 'boot'), wallMs: Date.now, log });
  return {
    addresses: boot?.addresses ?? {},
    roleHandlers({ identity, secrets, clock, status, readBootId, upgrade }) {
      if (identity.current.identity.role !== 'site') return null;
      const now = () => clock.now();
      const refused = (reason: string, detail: string): void => status.update({ lastRefusal: { atMs: now(), reason, detail } });
      boot?.attach({ stored: () => identity.current, secrets, now, refused });
      const host = { root: '/', readBootId };
      const desk = boot?.desk ?? null;
      const logs = { files: config.logFiles };
      const plugins = pluginsOf(config, log);
      return { handlers: createSiteHandlers({ config: site, host, logs, upgrade, plugins, secrets, now, refusals, desk }) };
    },
    async close() {
      await boot?.close();
    },
  };
}
