/**
 * The command kinds (KIND-002, KIND-003): one table for the server and the daemon. A kind that is not here does not exist;
 * the daemon answers UNSUPPORTED.
 */
import type { SubjectRule } from '../batch/subjects.ts';

export type NodeRole = 'node' | 'site' | 'ramdisk' | 'node-tenant';
export type Lane = 'control' | 'power' | 'bulk';

export interface CommandKindSpec {
  readonly roles: readonly NodeRole[];
  /** Commands of one lane run one after another on a node; lanes run side by side. */
  readonly lane: Lane;
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
const agent = 'bettercompute.agent.v1';

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
} as const satisfies Record<string, CommandKindSpec>);

export type CommandKind = keyof typeof commandKinds;

/** undefined for a kind that does not exist. */
export function findCommandKind(kind: string): CommandKindSpec | undefined {
  return Object.hasOwn(commandKinds, kind) ? commandKinds[kind as CommandKind] : undefined;
}

/** Most unacknowledged commands a gateway sends in one lane. */
export const laneWindows: Readonly<Record<Lane, number>> = Object.freeze({ control: 16, power: 1, bulk: 2 });
