/**
 * Evidence of a rotation (H-17): one signed document a stage, written when the stage was done.
 *
 * A document says what was decided, by whom, from which facts: the key bundle's digest and generation, the roots, the
 * published trust version, and for a gate the version every node reported, with the Merkle root over them. Each document
 * carries the hash of the one before, so a stage can neither be left out nor exchanged. The bytes are canonical JSON under
 * the audit key, purpose rotation-evidence; the chain is checked offline by verify-evidence.ts with nothing but the key's pin.
 *
 * Invariants: a document is made from facts and a clock given as arguments; the same facts give the same bytes; what leaves
 * here parses here. Threat model: whoever can write the evidence table or the exported file can drop, change or reorder
 * documents, and must not be believed. What it does not do: it does not decide whether a gate is open (domain/rotation/gates.ts),
 * and it does not protect against the holder of the audit key.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import type { RotationTimes } from '../../domain/rotation/gates.ts';
import { signingInput } from '../../proto/signing-input.ts';
import { type CanonicalValue, canonicalJson, parseCanonicalJson } from './canonical-json.ts';
import { merkleRoot } from './merkle.ts';
import { count, listOf, nullable, oneOf, type Problem, record, sha256Hex, text } from './shape.ts';

/** In the order in which they happen; an abort stands where it happened, and after a switch a drop still follows it. */
export const evidenceStages = Object.freeze(['plan', 'add', 'processes', 'fleet', 'switch', 'resign', 'abort', 'drop', 'confirm'] as const);
export type EvidenceStage = (typeof evidenceStages)[number];

export interface NodeReport {
  readonly nodeId: string;
  /** The trust version the node reported; null when it reports none. */
  readonly version: number | null;
}

export interface EvidenceOverride {
  readonly kind: 'force' | 'exclude' | 'abort';
  /** The phase a force opens, or the node an exclusion names; empty for an abort. */
  readonly subject: string;
  readonly actor: string;
  readonly reason: string;
  readonly at: number;
}

/** What a stage relied on. Instants are Unix milliseconds; roots are hex ids (SHA-256 of the certificate). */
export interface StageFacts {
  readonly trustDomain: string;
  readonly rotationId: string;
  readonly stage: EvidenceStage;
  readonly at: number;
  readonly actor: string;
  readonly bundle: { readonly digest: string; readonly generation: number };
  readonly roots: {
    readonly signing: string;
    readonly trusted: readonly string[];
    /** The rotation's roots as planned; `new` is null before the key exists. An abort does not exchange them here. */
    readonly old: string;
    readonly new: string | null;
  };
  readonly publishedVersion: number | null;
  /** The connected nodes a gate counted, and the version it asked for; null where no gate was asked. */
  readonly fleet: { readonly version: number; readonly nodes: readonly NodeReport[] } | null;
  /** The live processes a gate counted; null where no gate was asked. */
  readonly processes:
    | readonly {
        readonly id: string;
        readonly kind: string;
        readonly bundleDigest: string | null;
        readonly publishedVersionSeen: number | null;
      }[]
    | null;
  readonly overrides: readonly EvidenceOverride[];
  readonly times: RotationTimes;
  /** Only for a drop: what opened it. `forcedReason` is empty unless the overlap was cut short. */
  readonly overlap: {
    readonly switchedAt: number;
    readonly lastWorkerNotAfter: number | null;
    readonly opensAt: number;
    readonly forcedReason: string;
  } | null;
}

export interface StageEvidence extends Omit<StageFacts, 'fleet'> {
  readonly format: typeof evidenceFormat;
  /** 1 for the first document of a rotation. */
  readonly sequence: number;
  /** SHA-256 of the document before, in hex; 64 zeros for the first. */
  readonly previous: string;
  readonly fleet: { readonly version: number; readonly root: string; readonly nodes: readonly NodeReport[] } | null;
}

/** What is stored and exported: the exact bytes, and 64 bytes r‖s over them. */
export interface SignedEvidence {
  readonly document: Uint8Array;
  readonly signature: Uint8Array;
}

export interface EvidenceSigner {
  sign(input: Uint8Array): Promise<Uint8Array>;
}

export const evidenceFormat = 'better-compute/rotation-evidence/1';
const nothingBefore = '0'.repeat(64);

/**
 * Writes and signs the document of one stage.
 *
 * @param previous the rotation's newest document; null for its first
 * @throws ControlError MALFORMED when the facts do not make a document (all problems named), or `previous` is none
 */
export async function createStageEvidence(input: {
  signer: EvidenceSigner;
  facts: StageFacts;
  previous: Pick<SignedEvidence, 'document'> | null;
}): Promise<SignedEvidence> {
  const { facts, previous } = input;
  const evidence: StageEvidence = {
    ...facts,
    format: evidenceFormat,
    sequence: previous === null ? 1 : parseStageEvidence(previous.document).sequence + 1,
    previous: previous === null ? nothingBefore : evidenceHash(previous.document),
    roots: { ...facts.roots, trusted: [...facts.roots.trusted].sort() },
    fleet: facts.fleet === null ? null : fleetOf(facts.fleet),
  };
  const document = canonicalJson(evidence as unknown as CanonicalValue);
  parseStageEvidence(document);
  return { document, signature: await input.signer.sign(evidenceSigningInput(document)) };
}

/** What the audit key signs. */
export const evidenceSigningInput = (document: Uint8Array): Uint8Array => signingInput('rotation-evidence', [document]);

/** The name by which the next document calls this one. */
export const evidenceHash = (document: Uint8Array): string => createHash('sha256').update(document).digest('hex');

/** Merkle root over (node, version), nodes in ascending order of id: the order of a query never changes it. */
export const fleetRoot = (nodes: readonly NodeReport[]): string =>
  Buffer.from(merkleRoot(nodes.map((node) => canonicalJson([node.nodeId, node.version])))).toString('hex');

function fleetOf(fleet: { version: number; nodes: readonly NodeReport[] }): NonNullable<StageEvidence['fleet']> {
  const nodes = fleet.nodes
    .map(({ nodeId, version }) => ({ nodeId, version }))
    .sort((a, b) => (a.nodeId < b.nodeId ? -1 : Number(a.nodeId > b.nodeId)));
  return { version: fleet.version, root: fleetRoot(nodes), nodes };
}

const name = text(256);
const shape = record({
  format: oneOf([evidenceFormat]),
  trustDomain: name,
  rotationId: name,
  sequence: count,
  previous: sha256Hex,
  stage: oneOf(evidenceStages),
  at: count,
  actor: name,
  bundle: record({ digest: sha256Hex, generation: count }),
  roots: record({ signing: sha256Hex, trusted: listOf(sha256Hex), old: sha256Hex, new: nullable(sha256Hex) }),
  publishedVersion: nullable(count),
  fleet: nullable(record({ version: count, root: sha256Hex, nodes: listOf(record({ nodeId: name, version: nullable(count) })) })),
  processes: nullable(listOf(record({ id: name, kind: name, bundleDigest: nullable(sha256Hex), publishedVersionSeen: nullable(count) }))),
  overrides: listOf(record({ kind: oneOf(['force', 'exclude', 'abort']), subject: name, actor: name, reason: text(4096), at: count })),
  times: record({ overlapMs: count, dropMarginMs: count, workerLifetimeMs: count }),
  overlap: nullable(record({ switchedAt: count, lastWorkerNotAfter: nullable(count), opensAt: count, forcedReason: text(4096) })),
});

/**
 * Reads the bytes of one document.
 *
 * @throws ControlError MALFORMED: not canonical JSON, or not this format; `details.problems` lists every field at fault
 */
export function parseStageEvidence(document: Uint8Array): StageEvidence {
  const value = parseCanonicalJson(document);
  const problems: Problem[] = [];
  shape(value, '', problems);
  if (problems.length > 0) {
    throw new ControlError('MALFORMED', `not a rotation evidence: ${problems.map((p) => `${p.path || 'it'} ${p.message}`).join('; ')}`, {
      details: { reason: 'bad-evidence', problems },
    });
  }
  return value as unknown as StageEvidence;
}
