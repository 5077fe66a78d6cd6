/**
 * The commands of a run, one row each: of which step, on whom, how often at most, and what is taken back for it. The name of an act and
 * its number make the end of the command's id, `<workflow id>/<run id>/<act>.<n>`; n counts the attempts of a run, so that a
 * command is never sent twice under one id, and what an earlier attempt did is asked for before the next one is made. Which planned action
 * it is stands in the payload, by its ordinal, and is signed and approved there.
 */
import type { CommandKind } from '../commands/kinds.ts';
import { minute, second } from '../time.ts';

/** In the order in which they are done: nobody joins any more, then the machine is off, then its boot server says what holds. */
export const undos = Object.freeze(['close-boots', 'power-off', 'clean-up'] as const);
export type Undo = (typeof undos)[number];

export interface ActSpec {
  readonly kind: CommandKind;
  /** A site agent of the machine's site, the machine's own ramdisk, or its system. */
  readonly on: 'site' | 'ramdisk' | 'node';
  /** Attempts in one step: by another agent where there is one. What destroys is sent once (M49). */
  readonly tries: number;
  /** What is done on the way back once it may have begun; decided by what was sent, never by how far the run believes it is. */
  readonly undo?: readonly Undo[];
  /** Doing it twice is not doing it once: another attempt carries how the machine was before the first, and who gets it looks (MT2). */
  readonly looksBefore?: true;
  /** Its end is not waited for: something else proves it (M11). */
  readonly provenElsewhere?: true;
}

export const acts = Object.freeze({
  inventory: { kind: 'bmc.inventory', on: 'site', tries: 3 },
  'prepare-boot': { kind: 'boot.prepareRamdisk', on: 'site', tries: 3, undo: ['close-boots', 'clean-up'] },
  'set-boot': { kind: 'bmc.boot', on: 'site', tries: 3 },
  power: { kind: 'bmc.power', on: 'site', tries: 3, undo: ['power-off'], looksBefore: true },
  'read-disks': { kind: 'diag.disks', on: 'ramdisk', tries: 2 },
  'diagnose-gpus': { kind: 'diag.dcgm', on: 'ramdisk', tries: 1 },
  wipe: { kind: 'disk.wipe', on: 'ramdisk', tries: 1 },
  deploy: { kind: 'deploy.image', on: 'ramdisk', tries: 1 },
  start: { kind: 'boot.kexec', on: 'ramdisk', tries: 1, provenElsewhere: true },
  'clean-up': { kind: 'boot.cleanUp', on: 'site', tries: 3 },
  'power-off': { kind: 'bmc.power', on: 'site', tries: 3 },
  rotate: { kind: 'bmc.rotate', on: 'site', tries: 3 },
  // Of a profile's own steps (profile-steps.ts). Each is sent once: an approved one counts once, and what only looks is repeated as a whole.
  'ask-ramdisk': { kind: 'driver.invoke', on: 'ramdisk', tries: 1 },
  'invoke-ramdisk': { kind: 'driver.invoke', on: 'ramdisk', tries: 1 },
  'ask-node': { kind: 'driver.invoke', on: 'node', tries: 1 },
  'invoke-node': { kind: 'driver.invoke', on: 'node', tries: 1 },
  request: { kind: 'site.httpProxy', on: 'site', tries: 1 },
  restart: { kind: 'service.restart', on: 'node', tries: 1 },
  reboot: { kind: 'node.reboot', on: 'node', tries: 1 },
} as const satisfies Record<string, ActSpec>);

export type ActName = keyof typeof acts;

/** Of its row, with the fields that not every row has. */
export const actOf = (name: ActName): ActSpec => acts[name];

/** What ids of commands and secrets of one run begin with (SEC-006: the binding is what stands before the last slash). */
export const runPrefix = (workflowId: string, runId: string): string => `${workflowId}/${runId}`;

export const actCommandId = (prefix: string, act: ActName, n: number): string => `${prefix}/${act}.${n}`;

/**
 * A command that was sent and has not ended is somebody's only while he is there. An agent that is silent for longer loses it to
 * another one, who looks before he acts (MT2); a ramdisk that is silent for longer is gone, and with it what it was doing. Sessions that
 * drop and come back in the middle of a wipe are within it (MT3), and so is a system that reboots.
 */
export const silentForMs = Object.freeze({ site: 90 * second, ramdisk: 15 * minute, node: 15 * minute });
