/**
 * What a machine that asks is told, as one table over every state it can be in here (M6).
 *
 *   its record                               answer
 *   does not read back, or another's doesn't hold: it may be the one that an entry stands for
 *   entry open                               the ramdisk
 *   entry used (the ramdisk has asserted)    hold: its token is spent, a second boot needs a second entry
 *   entry expired                            hold, until the run is cleaned up
 *   no entry, told HOLD                      hold
 *   no entry, told LOCAL                     the local disk
 *   no record                                what the site's owner set: hold, unless they said otherwise
 *
 * Invariant: the local disk is an answer only where nothing stands. Between an entry and its clean-up there is no instant, no expiry
 * and no crash in which the machine would start what is on its disk in the middle of a maintenance.
 */
import { type BootEntry, type MachineRecord, standingEntry } from './machine-record.ts';

export type BootAnswer =
  | { readonly kind: 'ramdisk'; readonly nodeId: string; readonly entry: BootEntry }
  | { readonly kind: 'hold'; readonly why: string }
  | { readonly kind: 'local'; readonly why: string };

export interface Asked {
  /** Of the machine with this MAC address. */
  readonly record: MachineRecord | undefined;
  /** Some record of this boot server does not read back, and nobody knows whose addresses it holds. */
  readonly recordsDamaged: boolean;
  readonly defaultAnswer: 'hold' | 'local';
}

export type MachineSituation = 'damaged' | 'unknown' | 'open' | 'used' | 'expired' | 'held' | 'released' | 'unsaid';

export function situationOf({ record, recordsDamaged }: Asked, now: number): MachineSituation {
  const entry = record === undefined ? undefined : standingEntry(record);
  if (entry !== undefined) return entryState(entry, now);
  if (record?.answer === 'hold') return 'held';
  if (record?.answer === 'local') return 'released';
  if (recordsDamaged) return 'damaged';
  return record === undefined ? 'unknown' : 'unsaid';
}

/** Expired before used: after its end nothing is handed out, whoever came first. */
export function entryState({ used, expiresAtMs }: BootEntry, now: number): 'open' | 'used' | 'expired' {
  if (now >= expiresAtMs) return 'expired';
  return used === null ? 'open' : 'used';
}

/** Situation → what is told, `default` where the site's owner says. */
export const answerTable = Object.freeze({
  damaged: { answer: 'hold', why: 'a record of this boot server does not read back' },
  unknown: { answer: 'default', why: 'nothing is known of this machine' },
  open: { answer: 'ramdisk', why: 'a run waits for it' },
  used: { answer: 'hold', why: 'its ramdisk has started already' },
  expired: { answer: 'hold', why: 'its time to start the ramdisk is over' },
  held: { answer: 'hold', why: 'it is under maintenance' },
  released: { answer: 'local', why: 'it boots its own disk' },
  unsaid: { answer: 'default', why: 'nothing was said of this machine' },
} as const satisfies Record<MachineSituation, { answer: 'hold' | 'local' | 'ramdisk' | 'default'; why: string }>);

export function answerFor(asked: Asked, now: number): BootAnswer {
  const { answer, why } = answerTable[situationOf(asked, now)];
  const entry = asked.record === undefined ? undefined : standingEntry(asked.record);
  switch (answer) {
    case 'ramdisk':
      // Only an entry is in this situation.
      return asked.record === undefined || entry === undefined
        ? { kind: 'hold', why }
        : { kind: 'ramdisk', nodeId: asked.record.nodeId, entry };
    case 'hold':
      return { kind: 'hold', why };
    case 'local':
      return { kind: 'local', why };
    case 'default':
      return { kind: asked.defaultAnswer, why };
  }
}
