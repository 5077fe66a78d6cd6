/**
 * The check of one tenant's audit trail (AUD-004, AUD-006): its checkpoints against the pin of the audit key, its events against the
 * checkpoints. It believes the pin and its own arithmetic: not the database, not the order of rows, not a clock.
 *
 * Events come one by one, so a trail of any length is checked in little memory.
 */
import { ControlError } from '../../domain/errors.ts';
import { parseP256Spki, spkiPin, verifyRawSignature } from '../x509/index.ts';
import {
  type AuditCheckpoint,
  checkpointHash,
  checkpointInput,
  eventsRoot,
  noCheckpoint,
  parseCheckpoint,
  type SignedCheckpoint,
} from './checkpoint.ts';
import { type AuditRow, auditHash, deploymentTenant } from './event.ts';

export type TrailCheck = 'checkpoint' | 'pin' | 'signature' | 'chain' | 'event' | 'interval';

export interface TrailProblem {
  readonly check: TrailCheck;
  /** `checkpoint 3`, `event 17`. */
  readonly at: string;
  readonly message: string;
}

export interface TrailVerdict {
  readonly valid: boolean;
  readonly tenant: string;
  readonly checkpoints: number;
  /** Hex SHA-256 of the last checkpoint: whoever kept it notices when it is cut off. */
  readonly lastCheckpoint: { readonly number: number; readonly at: number; readonly sha256: string } | null;
  /** Events that a checkpoint covers. */
  readonly sealed: number;
  /** Events behind the last checkpoint: their own hashes hold, nothing is signed. */
  readonly unsealed: number;
  readonly oldestUnsealedAt: number | null;
  readonly problems: readonly TrailProblem[];
}

export interface TrailOptions {
  readonly tenant: string;
  readonly trustDomain: string | null;
  /** `sha256/<base64>` of the audit key. */
  readonly pin: string;
  readonly checkpoints: readonly SignedCheckpoint[];
  /** A checkpoint that someone kept: it must be there, or the trail was cut off behind it. */
  readonly kept?: { readonly number: number; readonly sha256: string };
}

export interface TrailVerifier {
  /** The tenant's events, by rising seq. */
  add(row: AuditRow): void;
  end(): TrailVerdict;
}

/** Shown at most: after the first ones nobody reads on. */
const problemsKept = 100;

/** Checks the checkpoints at once and the events as they come. Never throws for what is wrong: the verdict says it. */
export function createTrailVerifier(options: TrailOptions): TrailVerifier {
  const problems: TrailProblem[] = [];
  const report = (check: TrailCheck, at: string, message: string): void => {
    if (problems.length < problemsKept) problems.push({ check, at, message });
  };
  const checkpoints = checkCheckpoints(options, report);
  const intervals = createIntervals(checkpoints, report);
  let [lastSeq, sealed, unsealed] = [0, 0, 0];
  let oldestUnsealedAt: number | null = null;
  return {
    add(row) {
      if ((row.tenant ?? deploymentTenant) !== options.tenant) report('event', `event ${row.seq}`, `is of tenant ${row.tenant}`);
      if (row.seq <= lastSeq) report('event', `event ${row.seq}`, 'is out of order');
      lastSeq = row.seq;
      if (!isIntact(row)) report('event', `event ${row.seq}`, 'does not match its hash: it was changed');
      if (intervals.take(row)) sealed += 1;
      else {
        unsealed += 1;
        oldestUnsealedAt ??= row.at;
      }
    },
    end() {
      intervals.end();
      const last = checkpoints.at(-1);
      return {
        valid: problems.length === 0,
        tenant: options.tenant,
        checkpoints: options.checkpoints.length,
        lastCheckpoint: last === undefined ? null : { number: last.checkpoint.number, at: last.checkpoint.at, sha256: last.hash },
        sealed,
        unsealed,
        oldestUnsealedAt,
        problems,
      };
    },
  };
}

type Report = (check: TrailCheck, at: string, message: string) => void;

interface ReadCheckpoint {
  readonly checkpoint: AuditCheckpoint;
  readonly hash: string;
}

function checkCheckpoints({ checkpoints, pin, tenant, trustDomain, kept }: TrailOptions, report: Report): ReadCheckpoint[] {
  const read: ReadCheckpoint[] = [];
  for (const [index, signed] of checkpoints.entries()) {
    const name = `checkpoint ${index + 1}`;
    const checkpoint = readCheckpoint(signed, (message) => report('checkpoint', name, message));
    if (checkpoint === null) continue;
    checkSignature({ checkpoint, signed, pin }, (check, message) => report(check, name, message)); // 1. by the pinned key
    if (checkpoint.tenant !== tenant) report('checkpoint', name, `is of tenant ${checkpoint.tenant}`); // 2. of this trail
    if (trustDomain !== null && checkpoint.trustDomain !== trustDomain) report('checkpoint', name, `is of ${checkpoint.trustDomain}`);
    for (const message of chainProblems(checkpoint, { index, before: read.at(-1) })) report('chain', name, message); // 3. in its place
    read.push({ checkpoint, hash: checkpointHash(signed.document) });
  }
  if (kept !== undefined && !read.some(({ checkpoint, hash }) => checkpoint.number === kept.number && hash === kept.sha256)) {
    report('chain', `checkpoint ${kept.number}`, `is not the one that was kept (${kept.sha256}): the trail was cut off or made anew`);
  }
  return read;
}

function readCheckpoint({ document }: SignedCheckpoint, report: (message: string) => void): AuditCheckpoint | null {
  try {
    return parseCheckpoint(document);
  } catch (error) {
    report(error instanceof ControlError ? error.message : 'cannot be read');
    return null;
  }
}

function checkSignature(
  { checkpoint, signed, pin }: { checkpoint: AuditCheckpoint; signed: SignedCheckpoint; pin: string },
  report: (check: 'pin' | 'signature', message: string) => void,
): void {
  const spki = new Uint8Array(Buffer.from(checkpoint.auditKey, 'base64'));
  if (spkiPin(spki) !== pin) return report('pin', `is signed by ${spkiPin(spki)}, not by the pinned audit key`);
  if (!isSignedBy(spki, signed)) report('signature', 'has a signature that does not match');
}

function isSignedBy(spki: Uint8Array, { document, signature }: SignedCheckpoint): boolean {
  try {
    return verifyRawSignature({ spki: parseP256Spki(spki), input: checkpointInput(document), signature });
  } catch {
    // A pin over bytes that are no key.
    return false;
  }
}

function chainProblems(checkpoint: AuditCheckpoint, { index, before }: { index: number; before: ReadCheckpoint | undefined }): string[] {
  const problems: string[] = [];
  if (checkpoint.number !== index + 1) problems.push(`says that it is number ${checkpoint.number}: one before it is missing`);
  if (checkpoint.previous !== (before?.hash ?? noCheckpoint)) problems.push('does not follow the one before it');
  if (before === undefined) return problems;
  if (checkpoint.fromSeq <= before.checkpoint.throughSeq) problems.push('covers events that the one before it covers');
  if (checkpoint.total !== before.checkpoint.total + checkpoint.count) problems.push('counts other events than there were');
  if (checkpoint.at < before.checkpoint.at) problems.push('is older than the one before it');
  return problems;
}

const isIntact = (row: AuditRow): boolean => {
  try {
    return Buffer.from(row.hash).equals(auditHash(row.prevHash, row));
  } catch {
    return false;
  }
};

/** Gathers the events of each interval and compares it with its checkpoint when the next one begins. */
function createIntervals(checkpoints: readonly ReadCheckpoint[], report: Report): { take(row: AuditRow): boolean; end(): void } {
  let at = 0;
  let hashes: Uint8Array[] = [];
  const close = ({ number, count, root }: AuditCheckpoint): void => {
    if (hashes.length !== count) report('interval', `checkpoint ${number}`, `covers ${count} event(s), the trail has ${hashes.length}`);
    else if (eventsRoot(hashes) !== root)
      report('interval', `checkpoint ${number}`, 'covers other events than the trail has, or in another order');
    hashes = [];
    at += 1;
  };
  return {
    take(row) {
      for (let next = checkpoints[at]?.checkpoint; next !== undefined && row.seq > next.throughSeq; next = checkpoints[at]?.checkpoint) {
        close(next);
      }
      const current = checkpoints[at]?.checkpoint;
      if (current === undefined) return false;
      hashes.push(row.hash);
      return true;
    },
    end() {
      while (at < checkpoints.length) close((checkpoints[at] as ReadCheckpoint).checkpoint);
    },
  };
}
