/** The handlers of a machine's own daemon: one for each row of the kind table that is for its role (KIND-002). */
import type { KindOfRole } from '../../domain/commands/kinds.ts';
import { daemonUpgradeHandler, type UpgradePorts } from './daemon-upgrade.ts';
import { driverInvokeHandler, type PluginPorts } from './driver-invoke.ts';
import type { KindHandler } from './handler.ts';
import { type HostFiles, inventoryHandler } from './inventory.ts';
import { type LogSources, logsCollectHandler } from './logs-collect.ts';
import { type RebootPorts, rebootHandler } from './reboot.ts';
import { type RestartPolicy, serviceRestartHandler } from './service-restart.ts';

export interface KindPorts {
  readonly host: HostFiles;
  readonly reboot: RebootPorts;
  readonly restart: RestartPolicy;
  readonly logs: LogSources;
  readonly upgrade: UpgradePorts | null;
  /** null: it hosts none. */
  readonly plugins: PluginPorts | null;
}

export const createKindHandlers = (ports: KindPorts): Readonly<Record<KindOfRole<'node'>, KindHandler>> =>
  Object.freeze({
    'inventory.refresh': inventoryHandler(ports.host),
    'node.reboot': rebootHandler(ports.reboot),
    'service.restart': serviceRestartHandler(ports.restart),
    'logs.collect': logsCollectHandler(ports.logs),
    'daemon.upgrade': daemonUpgradeHandler(ports.upgrade),
    'driver.invoke': driverInvokeHandler(ports.plugins),
  });
