/**
 * Evidence of what approvers decided (H-17): one signed document for a batch that has ended, one for a change of the approver set. It
 * holds the set that was asked and every signature, so that who reads it counts the approvers again instead of believing that it was done.
 *
 * Same purpose and threat model as evidence.ts; the format tells them apart. What it does not do: hold the scope. The root names it, and
 * whoever has the leaves computes the root (pki/quorum).
 */
import { ControlError } from '../../domain/errors.ts';
import { approverSetDigest, type QuorumFields } from '../trust/content.ts';
import { type CanonicalValue, canonicalJson, parseCanonicalJson } from './canonical-json.ts';
import { type EvidenceOverride, type EvidenceSigner, evidenceSigningInput, type SignedEvidence } from './evidence.ts';
import { count, listOf, nullable, oneOf, type Problem, record, type Shape, sha256Hex, text } from './shape.ts';

export const quorumEvidenceFormat = 'better-compute/quorum-evidence/1';

export interface SetInEvidence {
  readonly epoch: number;
  readonly keys: readonly { readonly kid: string; readonly spki: string }[];
  readonly threshold: number;
  readonly tiers: readonly { readonly maxScopeSize: number; readonly threshold: number }[];
  readonly unbatchedDestructivePerHour: number;
}

interface Common {
  /** The batch, or the rotation of the set. */
  readonly id: string;
  readonly trustDomain: string;
  readonly at: number;
  readonly actor: string;
  /** Bytes as base64url; those that counted where it was decided. */
  readonly signatures: readonly { readonly kid: string; readonly sig: string }[];
}

export interface BatchEvidence extends Common {
  readonly about: 'batch';
  /** The newest set by which its approvals suffice; where none is, the published one. */
  readonly set: SetInEvidence;
  readonly batch: {
    readonly tenant: string;
    readonly state: string;
    readonly root: string;
    readonly size: number;
    readonly required: number;
    readonly notAfter: number;
    readonly reason: string;
    readonly createdBy: string;
    readonly createdByAgent: string | null;
    readonly delegation: string | null;
    readonly closedBy: string;
    readonly closeReason: string;
  };
  /** How its commands ended; those that never went out among them, as cancelled. */
  readonly commands: readonly { readonly state: string; readonly count: number }[];
}

export interface ApproverSetEvidence extends Common {
  readonly about: 'approver-set';
  readonly from: SetInEvidence;
  readonly to: SetInEvidence;
  readonly publishedVersion: number;
  /** The connected machines and the set each enforces; null for none. */
  readonly fleet: readonly { readonly nodeId: string; readonly epoch: number | null; readonly sha256: string | null }[];
  readonly overrides: readonly EvidenceOverride[];
}

export type QuorumFacts = BatchEvidence | ApproverSetEvidence;
export type QuorumEvidence = QuorumFacts & { readonly format: typeof quorumEvidenceFormat };

/** @throws ControlError MALFORMED when the facts do not make a document (all problems named) */
export async function createQuorumEvidence({ signer, facts }: { signer: EvidenceSigner; facts: QuorumFacts }): Promise<SignedEvidence> {
  const document = canonicalJson({ ...facts, format: quorumEvidenceFormat } as unknown as CanonicalValue);
  parseQuorumEvidence(document);
  return { document, signature: await signer.sign(evidenceSigningInput(document)) };
}

const name = text(256);
const signature = record({ kid: sha256Hex, sig: text(86) });
const set = record({
  epoch: count,
  keys: listOf(record({ kid: sha256Hex, spki: text(256) })),
  threshold: count,
  tiers: listOf(record({ maxScopeSize: count, threshold: count })),
  unbatchedDestructivePerHour: count,
});
const common = {
  format: oneOf([quorumEvidenceFormat]),
  id: name,
  trustDomain: name,
  at: count,
  actor: name,
  signatures: listOf(signature),
};

const shapes: Readonly<Record<QuorumFacts['about'], Shape>> = Object.freeze({
  batch: record({
    ...common,
    about: oneOf(['batch']),
    set,
    batch: record({
      tenant: name,
      state: oneOf(['approved', 'expired', 'cancelled']),
      root: sha256Hex,
      size: count,
      required: count,
      notAfter: count,
      reason: text(2_048),
      createdBy: name,
      createdByAgent: nullable(name),
      delegation: nullable(name),
      closedBy: name,
      closeReason: text(4_096),
    }),
    commands: listOf(record({ state: name, count })),
  }),
  'approver-set': record({
    ...common,
    about: oneOf(['approver-set']),
    from: set,
    to: set,
    publishedVersion: count,
    fleet: listOf(record({ nodeId: name, epoch: nullable(count), sha256: nullable(sha256Hex) })),
    overrides: listOf(record({ kind: oneOf(['force', 'exclude', 'abort']), subject: name, actor: name, reason: text(4_096), at: count })),
  }),
});

/** @throws ControlError MALFORMED: not canonical JSON, or not this format; `details.problems` lists every field at fault */
export function parseQuorumEvidence(document: Uint8Array): QuorumEvidence {
  const value = parseCanonicalJson(document);
  const problems: Problem[] = [];
  const { about } = (typeof value === 'object' && value !== null ? value : {}) as { about?: unknown };
  const shape = shapes[about === 'approver-set' ? about : 'batch'];
  shape(value, '', problems);
  if (problems.length === 0) return value as unknown as QuorumEvidence;
  throw new ControlError('MALFORMED', `not the evidence of a quorum: ${problems.map((p) => `${p.path || 'it'} ${p.message}`).join('; ')}`, {
    details: { reason: 'bad-evidence', problems },
  });
}

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

export const setInEvidence = (quorum: QuorumFields): SetInEvidence => ({
  epoch: Number(quorum.approverSetEpoch),
  keys: quorum.approverKeys.map(({ kid, spki }) => ({ kid, spki: base64url(spki) })),
  threshold: quorum.approverThreshold,
  tiers: quorum.tiers.map(({ maxScopeSize, threshold }) => ({ maxScopeSize, threshold })),
  unbatchedDestructivePerHour: quorum.unbatchedDestructivePerHour,
});

/** The other way, for counting again. */
export const quorumInEvidence = (inEvidence: SetInEvidence): QuorumFields => ({
  approverKeys: inEvidence.keys.map(({ kid, spki }) => ({ kid, spki: new Uint8Array(Buffer.from(spki, 'base64url')) })),
  approverThreshold: inEvidence.threshold,
  tiers: inEvidence.tiers,
  unbatchedDestructivePerHour: inEvidence.unbatchedDestructivePerHour,
  approverSetSignatures: [],
  approverSetEpoch: inEvidence.epoch,
});

/** What LAG columns and `approvers show` call the set by. */
export const digestInEvidence = (inEvidence: SetInEvidence): string => approverSetDigest(quorumInEvidence(inEvidence));
