/**
 * How entries come and go: pure moves of one machine's record. Each is the same when it is made twice, so a command that is taken up
 * after a crash ends where it would have ended, and a used entry is never opened again.
 */
import { ControlError } from '../../../domain/errors.ts';
import { day, showInstant } from '../../../domain/time.ts';
import { type BootEntry, emptyRecord, type MachineRecord, standingEntry } from './machine-record.ts';

/** What a prepared entry was asked to be; the rest is what happened to it. */
export type WantedEntry = Pick<
  BootEntry,
  | 'entryId'
  | 'runId'
  | 'workflowId'
  | 'macAddresses'
  | 'bootNonce'
  | 'tokenRef'
  | 'tokenSha256'
  | 'expiresAtMs'
  | 'kernel'
  | 'initramfs'
  | 'kernelArgs'
>;

/** Closed entries are kept this long: what was seen of a run is asked for at its end. */
const rememberMs = 7 * day;
const rememberAtMost = 32;

/**
 * With the entry in place; one that stood before is closed.
 *
 * @throws INVALID_STATE when it was closed already or its time is over; CONFLICT when there is another of that id
 */
export function preparedWith(
  before: MachineRecord | undefined,
  { nodeId, wanted, now }: { nodeId: string; wanted: WantedEntry; now: number },
): MachineRecord {
  const record = before ?? emptyRecord(nodeId);
  const same = record.entries.find(({ entryId }) => entryId === wanted.entryId);
  if (same !== undefined) return assertSame(same, wanted) ?? record;
  if (now >= wanted.expiresAtMs)
    throw new ControlError(
      'INVALID_STATE',
      `boot entry ${wanted.entryId} ended at ${showInstant(wanted.expiresAtMs)}, before it was made`,
      {
        details: { reason: 'entry-expired' },
      },
    );
  const entry: BootEntry = { ...wanted, used: null, closedAtMs: null, scriptsServed: 0, lastSeenAtMs: 0, refusedAssertions: 0 };
  return {
    ...record,
    macAddresses: [...wanted.macAddresses],
    // Whatever becomes of the entry, the disk is not booted before somebody says so.
    answer: 'hold',
    entries: [
      entry,
      ...remembered(
        closed(record.entries, () => true, now),
        now,
      ),
    ],
  };
}

function assertSame(same: BootEntry, wanted: WantedEntry): undefined {
  const keys = Object.keys(wanted) as (keyof WantedEntry)[];
  const differing = keys.filter((key) => JSON.stringify(same[key]) !== JSON.stringify(wanted[key]));
  if (differing.length > 0)
    throw new ControlError('CONFLICT', `boot entry ${wanted.entryId} is here already with another ${differing.join(', ')}`, {
      details: { reason: 'entry-differs', differing },
    });
  if (same.closedAtMs !== null)
    throw new ControlError('INVALID_STATE', `boot entry ${wanted.entryId} was cleaned up at ${showInstant(same.closedAtMs)}`, {
      details: { reason: 'entry-closed' },
    });
  return undefined;
}

export interface CleanUp {
  readonly nodeId: string;
  readonly runId: string;
  readonly macAddresses: readonly string[];
  readonly answer: 'hold' | 'local';
}

/**
 * Without the run's entries, and with what the machine is told from now on. Where an entry of another run stands, what is told is
 * that run's to say: a late clean-up does not send a machine to its disk in the middle of the next run.
 */
export function cleanedUp(before: MachineRecord | undefined, { clean, now }: { clean: CleanUp; now: number }): MachineRecord {
  const record = before ?? emptyRecord(clean.nodeId);
  const entries = remembered(
    closed(record.entries, ({ runId }) => runId === clean.runId, now),
    now,
  );
  if (standingEntry({ ...record, entries }) !== undefined) return { ...record, entries };
  const macAddresses = clean.macAddresses.length > 0 ? [...clean.macAddresses] : record.macAddresses;
  return { ...record, macAddresses, answer: clean.answer, entries };
}

/** What was seen of a run, its closed entries with it. */
export function seenOfRun(record: MachineRecord | undefined, runId: string) {
  const entries = (record?.entries ?? []).filter((entry) => entry.runId === runId);
  return {
    removed: entries.filter(({ closedAtMs }) => closedAtMs !== null).length,
    scriptsServed: entries.reduce((sum, entry) => sum + entry.scriptsServed, 0),
    lastSeenAtMs: Math.max(0, ...entries.map(({ lastSeenAtMs }) => lastSeenAtMs)),
    assertedAtMs: Math.max(0, ...entries.map(({ used }) => used?.atMs ?? 0)),
    refusedAssertions: entries.reduce((sum, entry) => sum + entry.refusedAssertions, 0),
  };
}

const closed = (entries: readonly BootEntry[], which: (entry: BootEntry) => boolean, now: number): BootEntry[] =>
  entries.map((entry) => (entry.closedAtMs === null && which(entry) ? { ...entry, closedAtMs: now } : entry));

/** Newest first: a closed entry past its memory goes, a standing one never does. */
const remembered = (entries: readonly BootEntry[], now: number): BootEntry[] =>
  entries.filter(
    ({ closedAtMs, expiresAtMs }, at) =>
      closedAtMs === null || (at < rememberAtMost && now < Math.max(closedAtMs, expiresAtMs) + rememberMs),
  );
