/**
 * Checkpoints of the audit trail (AUD-001, AUD-002): for each tenant a chain of signed documents, each over the events since the one
 * before.
 *
 *   root     = Merkle tree hash over the events' hashes, in order       (what the interval holds, exactly)
 *   previous = SHA-256 over the document before                         (none can be left out or exchanged)
 *   document = canonical JSON, signed under purpose audit-checkpoint by the audit key, which it names
 *
 * Threat model: whoever can write every row of the database can change events and compute their hashes anew, but cannot sign. What
 * a checkpoint covers can therefore not be changed, removed or reordered unnoticed. What it does not do: cover events after the last
 * checkpoint (an hour's worth at most), notice that the newest checkpoints were cut off together with their events (keep the last
 * line that `audit verify` printed), or protect against the holder of the audit key.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { signingInput } from '../../proto/signing-input.ts';
import { type Signer, verifyRawSignature } from '../x509/index.ts';
import { type CanonicalValue, canonicalJson, parseCanonicalJson } from './canonical-json.ts';
import { merkleRoot } from './merkle.ts';
import { count, oneOf, type Problem, record, sha256Hex, text } from './shape.ts';

const checkpointFormat = 'better-compute/audit-checkpoint/1';

export interface AuditCheckpoint {
  readonly format: typeof checkpointFormat;
  readonly trustDomain: string;
  readonly tenant: string;
  /** 1, 2, 3, … in each tenant's chain. */
  readonly number: number;
  readonly at: number;
  /** Hex SHA-256 over the document before; of nothing for the first. */
  readonly previous: string;
  /** The tenant's events with seq in fromSeq..throughSeq, `count` of them; `total` counts from the first checkpoint on. */
  readonly fromSeq: number;
  readonly throughSeq: number;
  readonly count: number;
  readonly total: number;
  readonly root: string;
  /** Base64 SPKI of the audit key. */
  readonly auditKey: string;
}

export interface SignedCheckpoint {
  readonly document: Uint8Array;
  /** r‖s, 64 bytes. */
  readonly signature: Uint8Array;
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** What the first checkpoint of a chain names as the one before. */
export const noCheckpoint = sha256(new Uint8Array());

/** What the next checkpoint names as the one before. */
export const checkpointHash = (document: Uint8Array): string => sha256(document);

export const checkpointInput = (document: Uint8Array): Uint8Array => signingInput('audit-checkpoint', [document]);

/** The root over the hashes of an interval's events, in order. */
export const eventsRoot = (hashes: readonly Uint8Array[]): string => hex(merkleRoot(hashes));

export interface CreateCheckpointOptions {
  readonly trustDomain: string;
  readonly tenant: string;
  readonly at: number;
  /** null: the chain begins. */
  readonly previous: Uint8Array | null;
  /** The tenant's events since then, in order. */
  readonly events: readonly { readonly seq: number; readonly hash: Uint8Array }[];
  readonly signer: Signer;
}

/**
 * Makes the checkpoint behind `previous`.
 *
 * @throws INVALID_INPUT without an event; MALFORMED when the one before is none, or another tenant's; what the signer throws
 */
export async function createCheckpoint(
  options: CreateCheckpointOptions,
): Promise<SignedCheckpoint & { readonly checkpoint: AuditCheckpoint }> {
  const { trustDomain, tenant, at, events, signer } = options;
  const [first, last] = [events[0], events.at(-1)];
  if (first === undefined || last === undefined) {
    throw new ControlError('INVALID_INPUT', 'a checkpoint covers at least one event', { details: { reason: 'no-event' } });
  }
  const before = options.previous === null ? null : parseCheckpoint(options.previous);
  if (before !== null && before.tenant !== tenant) {
    throw new ControlError('MALFORMED', `the checkpoint before is of tenant ${before.tenant}`, { details: { reason: 'other-tenant' } });
  }
  const checkpoint: AuditCheckpoint = {
    format: checkpointFormat,
    trustDomain,
    tenant,
    number: (before?.number ?? 0) + 1,
    at: Math.floor(at),
    previous: options.previous === null ? noCheckpoint : checkpointHash(options.previous),
    fromSeq: first.seq,
    throughSeq: last.seq,
    count: events.length,
    total: (before?.total ?? 0) + events.length,
    root: eventsRoot(events.map(({ hash }) => hash)),
    auditKey: Buffer.from(signer.spki).toString('base64'),
  };
  const document = canonicalJson(checkpoint as unknown as CanonicalValue);
  const input = checkpointInput(document);
  const signature = await signer.sign(input);
  // Checked before it leaves: a checkpoint with a wrong signature would make the whole trail look tampered with.
  if (verifyRawSignature({ spki: signer.spki, input, signature })) return { checkpoint, document, signature };
  throw new ControlError('INTERNAL', "the audit key's signer answered a signature that does not match", {
    details: { reason: 'signed-other' },
  });
}

const shape = record({
  format: oneOf([checkpointFormat]),
  trustDomain: text(255),
  tenant: text(255),
  number: count,
  at: count,
  previous: sha256Hex,
  fromSeq: count,
  throughSeq: count,
  count,
  total: count,
  root: sha256Hex,
  auditKey: text(200),
});

/** @throws MALFORMED with every field at fault in `details.problems` */
export function parseCheckpoint(document: Uint8Array): AuditCheckpoint {
  const value = parseCanonicalJson(document);
  const problems: Problem[] = [];
  shape(value, '', problems);
  if (problems.length === 0) return value as unknown as AuditCheckpoint;
  const list = problems.map((problem) => `${problem.path || 'it'} ${problem.message}`).join('; ');
  throw new ControlError('MALFORMED', `not an audit checkpoint: ${list}`, { details: { reason: 'bad-checkpoint', problems } });
}
