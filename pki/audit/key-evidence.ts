/**
 * Evidence of the exchange of a key that is no command root (H-17): one signed document a stage, as evidence.ts has them for the
 * command roots. It says how the key stood after the stage, from where to where, which processes a gate counted, and what
 * operators decided; each document carries the hash of the one before.
 *
 * Same purpose, same invariants and the same threat model as evidence.ts; the format tells the two apart, and neither parses as
 * the other. What it does not do: name a key's bytes. Ids are serials and thumbprints.
 */
import { ControlError } from '../../domain/errors.ts';
import { type ExchangedKey, exchangedKeys, type KeyStanding, type RenewedCa, renewedCas } from '../../domain/rotation/key-exchanges.ts';
import { type CanonicalValue, canonicalJson, parseCanonicalJson } from './canonical-json.ts';
import { type EvidenceOverride, type EvidenceSigner, evidenceHash, evidenceSigningInput, type SignedEvidence } from './evidence.ts';
import { count, listOf, nullable, oneOf, type Problem, record, sha256Hex, text } from './shape.ts';

/** In the order in which they happen; an abort stands where it happened, and a retirement may follow it. */
export const keyStages = Object.freeze(['plan', 'add', 'processes', 'promote', 'abort', 'retire', 'confirm'] as const);
export type KeyStage = (typeof keyStages)[number];

export interface KeyProcess {
  readonly id: string;
  readonly kind: string;
  /** Digest of the bundle it runs, or serial of the certificate it presents; null when it reports none. */
  readonly runs: string | null;
}

/** What a stage relied on. Instants are Unix milliseconds. */
export interface KeyStageFacts {
  readonly trustDomain: string;
  readonly rotationId: string;
  readonly key: ExchangedKey;
  readonly subject: RenewedCa | '';
  readonly stage: KeyStage;
  readonly at: number;
  readonly actor: string;
  readonly bundle: { readonly digest: string; readonly generation: number };
  /** Every key of the kind, as it stood after the stage. */
  readonly keys: readonly KeyStanding[];
  readonly from: string | null;
  readonly to: string | null;
  /** The live processes a gate counted; null where no gate was asked. */
  readonly processes: readonly KeyProcess[] | null;
  readonly overrides: readonly EvidenceOverride[];
}

export interface KeyEvidence extends KeyStageFacts {
  readonly format: typeof keyEvidenceFormat;
  /** 1 for the first document of a rotation. */
  readonly sequence: number;
  /** SHA-256 of the document before, in hex; 64 zeros for the first. */
  readonly previous: string;
}

export const keyEvidenceFormat = 'better-compute/key-exchange-evidence/1';
const nothingBefore = '0'.repeat(64);

/**
 * Writes and signs the document of one stage.
 *
 * @param previous the rotation's newest document; null for its first
 * @throws ControlError MALFORMED when the facts do not make a document (all problems named), or `previous` is none
 */
export async function createKeyEvidence(input: {
  signer: EvidenceSigner;
  facts: KeyStageFacts;
  previous: Pick<SignedEvidence, 'document'> | null;
}): Promise<SignedEvidence> {
  const { facts, previous } = input;
  const evidence: KeyEvidence = {
    ...facts,
    format: keyEvidenceFormat,
    sequence: previous === null ? 1 : parseKeyEvidence(previous.document).sequence + 1,
    previous: previous === null ? nothingBefore : evidenceHash(previous.document),
  };
  const document = canonicalJson(evidence as unknown as CanonicalValue);
  parseKeyEvidence(document);
  return { document, signature: await input.signer.sign(evidenceSigningInput(document)) };
}

const name = text(256);
const keyId = text(128);
const shape = record({
  format: oneOf([keyEvidenceFormat]),
  trustDomain: name,
  rotationId: name,
  key: oneOf(exchangedKeys),
  subject: oneOf([...renewedCas, '']),
  sequence: count,
  previous: sha256Hex,
  stage: oneOf(keyStages),
  at: count,
  actor: name,
  bundle: record({ digest: sha256Hex, generation: count }),
  keys: listOf(record({ id: keyId, state: oneOf(['waiting', 'signing', 'former']), opensAt: nullable(count) })),
  from: nullable(keyId),
  to: nullable(keyId),
  processes: nullable(listOf(record({ id: name, kind: name, runs: nullable(keyId) }))),
  overrides: listOf(record({ kind: oneOf(['force', 'abort']), subject: name, actor: name, reason: text(4096), at: count })),
});

/**
 * Reads the bytes of one document.
 *
 * @throws ControlError MALFORMED: not canonical JSON, or not this format; `details.problems` lists every field at fault
 */
export function parseKeyEvidence(document: Uint8Array): KeyEvidence {
  const value = parseCanonicalJson(document);
  const problems: Problem[] = [];
  shape(value, '', problems);
  if (problems.length === 0) return value as unknown as KeyEvidence;
  throw new ControlError(
    'MALFORMED',
    `not the evidence of a key's exchange: ${problems.map((p) => `${p.path || 'it'} ${p.message}`).join('; ')}`,
    {
      details: { reason: 'bad-evidence', problems },
    },
  );
}
