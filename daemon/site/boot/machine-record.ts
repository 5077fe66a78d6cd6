/** What a boot server keeps of one machine: what was asked of it, and what it saw. Plain data; answers.ts says what it means. */
import type { BootArtefact } from './artefacts.ts';

/** Who asserted the entry: once, and from then on nobody else. */
export interface EntryUse {
  readonly atMs: number;
  /** Hex; over the key that the machine will use. */
  readonly csrSha256: string;
  readonly macAddress: string;
  readonly systemUuid: string;
  readonly systemSerial: string;
}

/** One boot of one run (BootPrepareRamdisk). */
export interface BootEntry {
  readonly entryId: string;
  readonly runId: string;
  /** Of the command: discovery tokens are bound to it (SEC-023). */
  readonly workflowId: string;
  readonly macAddresses: readonly string[];
  /** Hex. */
  readonly bootNonce: string;
  readonly tokenRef: string;
  /** Hex; the token itself is kept in memory alone. */
  readonly tokenSha256: string;
  readonly expiresAtMs: number;
  readonly kernel: BootArtefact;
  readonly initramfs: BootArtefact;
  readonly kernelArgs: string;
  readonly used: EntryUse | null;
  /** Cleaned up, or another took its place: it is answered no more, and remembered for what was seen. */
  readonly closedAtMs: number | null;
  readonly scriptsServed: number;
  /** 0: the machine never asked. */
  readonly lastSeenAtMs: number;
  /** Others that came with its token. */
  readonly refusedAssertions: number;
}

export interface MachineRecord {
  readonly nodeId: string;
  readonly macAddresses: readonly string[];
  /** What it is told when no entry stands; null: nobody said. */
  readonly answer: 'hold' | 'local' | null;
  readonly entries: readonly BootEntry[];
}

export const emptyRecord = (nodeId: string): MachineRecord => Object.freeze({ nodeId, macAddresses: [], answer: null, entries: [] });

/** The one entry that is answered; a newer one closes it. */
export const standingEntry = ({ entries }: MachineRecord): BootEntry | undefined => entries.find(({ closedAtMs }) => closedAtMs === null);

/** As it is, with one entry another. */
export const withEntry = (record: MachineRecord, entry: BootEntry): MachineRecord => ({
  ...record,
  entries: record.entries.map((one) => (one.entryId === entry.entryId ? entry : one)),
});
