/**
 * The records of a boot server, one file a machine, so that an agent that was killed answers the same as before. A change is durable
 * before it is answered by; changes run one after another.
 *
 * A record that does not read back is left as it is and said so; from then on nobody unknown is sent to its disk, for it may be the
 * machine of that record. The next command about the machine writes it anew.
 */
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isNodeId } from '../../../domain/commands/ids.ts';
import { ControlError } from '../../../domain/errors.ts';
import { readJsonFile, writeJsonFile } from '../../state/json-file.ts';
import { type MachineRecord, standingEntry, withEntry } from './machine-record.ts';

const hex = (digits: number) => z.string().regex(new RegExp(`^[0-9a-f]{${digits}}$`));
const mac = z.string().regex(/^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/);
const artefact = z.strictObject({ name: z.string(), sha256: hex(64) });
const count = z.number().int().min(0);

const use = z.strictObject({
  atMs: z.number(),
  csrSha256: hex(64),
  macAddress: mac,
  systemUuid: z.string(),
  systemSerial: z.string(),
});

const entry = z.strictObject({
  entryId: z.string(),
  runId: z.string(),
  workflowId: z.string(),
  macAddresses: z.array(mac),
  bootNonce: hex(32),
  tokenRef: z.string(),
  tokenSha256: hex(64),
  expiresAtMs: z.number(),
  kernel: artefact,
  initramfs: artefact,
  kernelArgs: z.string(),
  used: use.nullable(),
  closedAtMs: z.number().nullable(),
  scriptsServed: count,
  lastSeenAtMs: z.number(),
  refusedAssertions: count,
});

const schema = z.strictObject({
  format: z.literal('better-compute/boot-record/1'),
  nodeId: z.string().refine(isNodeId),
  macAddresses: z.array(mac),
  answer: z.enum(['hold', 'local']).nullable(),
  entries: z.array(entry),
});

/** A machine has a handful of entries; what is larger was not written by us. */
const maxBytes = 1024 * 1024;
const fileForm = /^machine-([A-Za-z0-9._-]{1,63})\.json$/;
/** What was merely seen is written this much later, with whatever else was seen by then. */
const lazyMs = 5_000;

export interface Noted {
  readonly nodeId: string;
  readonly entryId: string;
  readonly atMs: number;
  readonly what: 'script' | 'refused-assertion';
}

export interface BootStore {
  find(nodeId: string): MachineRecord | undefined;
  findByMac(macAddress: string): MachineRecord | undefined;
  all(): Iterable<MachineRecord>;
  /** Node ids of the records that do not read back. */
  readonly damaged: ReadonlySet<string>;
  /**
   * Durable when it returns. A throw of `change`, and the same record from it, change nothing.
   *
   * @param taken what becomes of an address under which another machine is held: a refusal, or it is left to that machine
   * @throws CONFLICT (`mac-of-another`)
   */
  change(
    nodeId: string,
    how: { change: (record: MachineRecord | undefined) => MachineRecord; taken: 'refuse' | 'leave' },
  ): Promise<MachineRecord>;
  /** The machine asked for its entry's script, or somebody came with its token once more. Written soon; the first time at once. */
  note(at: Noted): Promise<void>;
  /** Writes what is not written yet. */
  close(): Promise<void>;
}

/** @throws what the file system does; a damaged record is no error */
export async function openBootStore(folder: string, onDamaged: (error: unknown) => void): Promise<BootStore> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { records, damaged } = await readAll(folder, onDamaged);
  const unwritten = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  const inTurn = createTurns();
  const write = async (record: MachineRecord): Promise<void> => {
    const path = join(folder, `machine-${record.nodeId}.json`);
    await writeJsonFile(path, { format: 'better-compute/boot-record/1', ...record }, { keepPrevious: damaged.has(record.nodeId) });
    damaged.delete(record.nodeId);
    unwritten.delete(record.nodeId);
    records.set(record.nodeId, record);
  };
  const flush = async (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    for (const nodeId of unwritten) await write(records.get(nodeId) as MachineRecord);
  };
  const byMac = (macAddress: string): MachineRecord | undefined =>
    [...records.values()].find((record) => addressesOf(record).includes(macAddress));
  /** With the addresses that it may have; a machine that nothing holds gives its own up. */
  const placed = async (changed: MachineRecord, { before, taken }: { before: MachineRecord | undefined; taken: 'refuse' | 'leave' }) => {
    const others = new Set(addressesOf(changed).map(byMac));
    others.delete(before);
    let kept = changed;
    for (const other of others) {
      if (other === undefined) continue;
      if (!isHeld(other)) await write(without(other, changed.macAddresses));
      else if (taken === 'leave') kept = without(kept, addressesOf(other));
      else throw takenBy(other, changed);
    }
    return kept;
  };
  const note = async (at: Noted): Promise<void> => {
    const next = noted(records.get(at.nodeId), at);
    if (next === undefined) return;
    if (next.isFirst) return write(next.record);
    records.set(at.nodeId, next.record);
    unwritten.add(at.nodeId);
    timer ??= setTimeout(() => void inTurn(flush).catch(onDamaged), lazyMs).unref();
  };
  return {
    damaged,
    find: (nodeId) => records.get(nodeId),
    findByMac: byMac,
    all: () => records.values(),
    change: (nodeId, { change, taken }) =>
      inTurn(async () => {
        const before = records.get(nodeId);
        const changed = change(before);
        if (changed === before) return changed;
        const kept = await placed(changed, { before, taken });
        await write(kept);
        return kept;
      }),
    note: (at) => inTurn(() => note(at)),
    close: () => inTurn(flush),
  };
}

/** Steps run one after another; one that fails does not keep the next from its turn. */
function createTurns(): <T>(step: () => Promise<T>) => Promise<T> {
  let work: Promise<unknown> = Promise.resolve();
  return (step) => {
    const done = work.then(step);
    work = done.catch(() => undefined);
    return done;
  };
}

/** undefined when there is no such entry. */
function noted(record: MachineRecord | undefined, { entryId, atMs, what }: Noted): { record: MachineRecord; isFirst: boolean } | undefined {
  const seen = record?.entries.find((one) => one.entryId === entryId);
  if (record === undefined || seen === undefined) return undefined;
  const count = what === 'script' ? 'scriptsServed' : 'refusedAssertions';
  const lastSeenAtMs = what === 'script' ? atMs : seen.lastSeenAtMs;
  return { record: withEntry(record, { ...seen, [count]: seen[count] + 1, lastSeenAtMs }), isFirst: seen[count] === 0 };
}

async function readAll(folder: string, onDamaged: (error: unknown) => void) {
  const records = new Map<string, MachineRecord>();
  const damaged = new Set<string>();
  for (const file of (await readdir(folder)).sort()) {
    const nodeId = fileForm.exec(file)?.[1];
    if (nodeId === undefined) continue;
    try {
      const read = await readJsonFile(join(folder, file), schema, maxBytes);
      if (read === undefined) continue;
      const { format: _, ...record } = read;
      if (record.nodeId !== nodeId)
        throw new ControlError('DATA_CORRUPT', `${file} is of machine ${record.nodeId}`, { details: { reason: 'damaged' } });
      records.set(nodeId, record);
    } catch (error) {
      damaged.add(nodeId);
      onDamaged(error);
    }
  }
  return { records, damaged };
}

const addressesOf = (record: MachineRecord): readonly string[] => {
  const standing = standingEntry(record);
  return standing === undefined ? record.macAddresses : [...new Set([...record.macAddresses, ...standing.macAddresses])];
};

const isHeld = (record: MachineRecord): boolean => record.answer === 'hold' || standingEntry(record) !== undefined;

const without = (record: MachineRecord, macAddresses: readonly string[]): MachineRecord => ({
  ...record,
  macAddresses: record.macAddresses.filter((one) => !macAddresses.includes(one)),
});

function takenBy(other: MachineRecord, { nodeId, macAddresses }: MachineRecord): ControlError {
  const shared = addressesOf(other).filter((one) => macAddresses.includes(one));
  return new ControlError(
    'CONFLICT',
    `${shared.join(', ')} of machine ${nodeId} is an address of ${other.nodeId}, which is under maintenance`,
    {
      details: {
        reason: 'mac-of-another',
        nodeId: other.nodeId,
        hint: 'end the run of the other machine, or correct the addresses of one',
      },
    },
  );
}
