/**
 * The command kinds (KIND-002, KIND-003): one table for the server and the daemon. A kind that is not here does not exist;
 * the daemon answers UNSUPPORTED.
 */
import type { SubjectRule } from '../batch/subjects.ts';

export type NodeRole = 'node' | 'site' | 'ramdisk' | 'node-tenant';
export type Lane = 'control' | 'power' | 'bulk' | 'bmc' | 'boot' | 'proxy' | 'disk' | 'driver';

export interface CommandKindSpec {
  readonly roles: readonly NodeRole[];
  /** Commands of one lane run one after another on a node; lanes run side by side. */
  readonly lane: Lane;
  /** One after another for each subject alone: a site agent serves many machines, and each controller one request at a time. */
  readonly perSubject?: true;
  /** Needs an approved batch once a quorum is set. */
  readonly destructive: boolean;
  /** What a command of this kind acts on, as approvers read it (QUO-028). */
  readonly subject: SubjectRule;
  /** From the start on the machine to the last moment a result counts. */
  readonly timeoutMs: number;
  /** Running it twice does no harm; otherwise a lost end is reported as interrupted and never repeated. */
  readonly idempotent: boolean;
  /** Full protobuf names, without the type.googleapis.com/ prefix. */
  readonly payload: string;
  readonly result: string;
  readonly summary: string;
}

const minutes = (n: number): number => n * 60_000;
const hours = (n: number): number => n * 60 * 60_000;
const agent = 'bettercompute.agent.v1';
const site = 'bettercompute.site.v1';
const driver = 'bettercompute.driver.v1';

export const commandKinds = Object.freeze({
  'inventory.refresh': {
    roles: ['node', 'site'],
    lane: 'control',
    destructive: false,
    subject: 'node',
    timeoutMs: minutes(1),
    idempotent: true,
    payload: `${agent}.InventoryRefresh`,
    result: `${agent}.InventoryReport`,
    summary: 'report the hardware and the network',
  },
  'node.reboot': {
    roles: ['node'],
    lane: 'power',
    destructive: true,
    subject: 'node',
    timeoutMs: minutes(15),
    idempotent: false,
    payload: `${agent}.NodeReboot`,
    result: `${agent}.NodeRebootResult`,
    summary: 'reboot; done when the machine is back with another boot id',
  },
  'service.restart': {
    roles: ['node'],
    lane: 'control',
    destructive: false,
    subject: 'node',
    timeoutMs: minutes(5),
    idempotent: false,
    payload: `${agent}.ServiceRestart`,
    result: `${agent}.ServiceRestartResult`,
    summary: 'restart one of the allowed systemd units',
  },
  'logs.collect': {
    roles: ['node', 'site'],
    lane: 'bulk',
    destructive: false,
    subject: 'node',
    timeoutMs: minutes(10),
    idempotent: true,
    payload: `${agent}.LogsCollect`,
    result: `${agent}.LogsCollectResult`,
    summary: "upload a unit's log to a given address",
  },
  'daemon.upgrade': {
    roles: ['node', 'site'],
    // With the reboots: neither cuts the other off.
    lane: 'power',
    // It brings what a release key signed and nothing else, never an older one.
    destructive: false,
    subject: 'node',
    timeoutMs: minutes(30),
    idempotent: true,
    payload: `${agent}.DaemonUpgrade`,
    result: `${agent}.DaemonUpgradeResult`,
    summary: 'replace the daemon by a signed release; done when the new program has a session',
  },
  'driver.invoke': {
    roles: ['node', 'site', 'ramdisk'],
    // Of its own: a plugin that takes its time holds up nothing but other plugins.
    lane: 'driver',
    // But where command and machine agree that the method is harmless (domain/commands/harm.ts).
    destructive: true,
    subject: 'node',
    timeoutMs: minutes(30),
    idempotent: false,
    payload: `${driver}.DriverInvoke`,
    result: `${driver}.DriverInvokeResult`,
    summary: "call a method of one of the machine's own plugins",
  },
  'bmc.power': {
    roles: ['site'],
    lane: 'bmc',
    perSubject: true,
    destructive: true,
    subject: 'bmc',
    timeoutMs: minutes(5),
    idempotent: false,
    payload: `${site}.BmcPower`,
    result: `${site}.BmcPowerResult`,
    summary: 'turn a machine on or off through its management controller; done when the state was observed',
  },
  'bmc.boot': {
    roles: ['site'],
    lane: 'bmc',
    perSubject: true,
    destructive: true,
    subject: 'bmc',
    timeoutMs: minutes(5),
    idempotent: true,
    payload: `${site}.BmcBoot`,
    result: `${site}.BmcBootResult`,
    summary: 'set what a machine boots from once; done when it was read back',
  },
  'bmc.rotate': {
    roles: ['site'],
    lane: 'bmc',
    perSubject: true,
    destructive: true,
    subject: 'bmc',
    timeoutMs: minutes(5),
    idempotent: true,
    payload: `${site}.BmcRotate`,
    result: `${site}.BmcRotateResult`,
    summary: "change the password of a management controller's account; done when a session was opened with it",
  },
  'bmc.inventory': {
    roles: ['site'],
    lane: 'bmc',
    perSubject: true,
    destructive: false,
    subject: 'bmc',
    timeoutMs: minutes(2),
    idempotent: true,
    payload: `${site}.BmcInventory`,
    result: `${site}.BmcInventoryReport`,
    summary: 'read what a management controller knows of its machine',
  },
  'site.httpProxy': {
    roles: ['site'],
    lane: 'proxy',
    perSubject: true,
    // But a GET (domain/commands/harm.ts).
    destructive: true,
    subject: 'target',
    timeoutMs: minutes(2),
    idempotent: false,
    payload: `${site}.SiteHttpProxy`,
    result: `${site}.SiteHttpProxyResult`,
    summary: "make an HTTP request on a machine's behalf; anything but a GET is a write",
  },
  'boot.prepareRamdisk': {
    roles: ['site'],
    lane: 'boot',
    perSubject: true,
    destructive: false,
    subject: 'target',
    timeoutMs: minutes(2),
    idempotent: true,
    payload: `${site}.BootPrepareRamdisk`,
    result: `${site}.BootPrepareRamdiskResult`,
    summary: 'let one machine boot into the ramdisk, for one run',
  },
  'boot.cleanUp': {
    roles: ['site'],
    lane: 'boot',
    perSubject: true,
    destructive: false,
    subject: 'target',
    timeoutMs: minutes(2),
    idempotent: true,
    payload: `${site}.BootCleanUp`,
    result: `${site}.BootCleanUpResult`,
    summary: "take a run's boot entries away and say what the machine boots from now on",
  },
  'diag.disks': {
    roles: ['ramdisk'],
    lane: 'control',
    destructive: false,
    subject: 'node',
    timeoutMs: minutes(2),
    idempotent: true,
    payload: `${agent}.DiagDisks`,
    result: `${agent}.DiagDisksReport`,
    summary: 'report the disks and the identity of the machine',
  },
  'diag.dcgm': {
    roles: ['ramdisk'],
    lane: 'bulk',
    destructive: false,
    subject: 'node',
    timeoutMs: hours(2),
    idempotent: true,
    payload: `${agent}.DiagDcgm`,
    result: `${agent}.DiagDcgmReport`,
    summary: "run NVIDIA's diagnosis of the machine's GPUs",
  },
  'disk.wipe': {
    roles: ['ramdisk'],
    lane: 'disk',
    destructive: true,
    subject: 'node',
    timeoutMs: hours(72),
    idempotent: false,
    payload: `${agent}.DiskWipe`,
    result: `${agent}.DiskWipeResult`,
    summary: 'erase disks so that nothing of them can be read again, with signed evidence',
  },
  'deploy.image': {
    roles: ['ramdisk'],
    lane: 'disk',
    destructive: true,
    subject: 'node',
    timeoutMs: hours(2),
    idempotent: false,
    payload: `${agent}.DeployImage`,
    result: `${agent}.DeployImageResult`,
    summary: 'write an operating system to a disk, with signed evidence',
  },
  'boot.kexec': {
    roles: ['ramdisk'],
    lane: 'power',
    destructive: true,
    subject: 'node',
    timeoutMs: minutes(10),
    idempotent: false,
    payload: `${agent}.BootKexec`,
    result: `${agent}.BootKexecResult`,
    summary: 'start the operating system on the disk; done when the next identity joins',
  },
} as const satisfies Record<string, CommandKindSpec>);

export type CommandKind = keyof typeof commandKinds;

/** The kinds that a daemon of a role runs. */
export type KindOfRole<R extends NodeRole> = {
  [K in CommandKind]: R extends (typeof commandKinds)[K]['roles'][number] ? K : never;
}[CommandKind];

/** undefined for a kind that does not exist. */
export function findCommandKind(kind: string): CommandKindSpec | undefined {
  return Object.hasOwn(commandKinds, kind) ? commandKinds[kind as CommandKind] : undefined;
}

/** Most unacknowledged commands a gateway sends in one lane. */
export const laneWindows: Readonly<Record<Lane, number>> = Object.freeze({
  control: 16,
  power: 1,
  bulk: 2,
  bmc: 256,
  boot: 256,
  proxy: 64,
  disk: 1,
  driver: 16,
});
