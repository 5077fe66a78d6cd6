/**
 * Who approves, as a deployment configures it (pki.approvers, QUO-054 to QUO-065, APPR-020 to APPR-022) and as its environment names it
 * (BETTER_COMPUTE_APPROVER_…, QUO-067 to QUO-069, APPR-029 to APPR-032). Judged once, before anything is served.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../domain/errors.ts';
import { validateQuorum } from '../pki/quorum/index.ts';
import { approverSetDigest, type QuorumFields } from '../pki/trust/index.ts';
import { parseP256Spki } from '../pki/x509/index.ts';

export interface ApproversOptions {
  /** P-256 SPKI, DER; distinct. */
  readonly keys: readonly Uint8Array[];
  /** 1 to the number of keys. */
  readonly threshold: number;
  /** Ascending: small batches may need fewer. */
  readonly tiers?: readonly { readonly maxScopeSize: number; readonly threshold: number }[];
  /** Default 0: destructive work without a batch is not done. */
  readonly unbatchedDestructivePerHour?: number;
  /** Default 1; required with setSignatures, which sign it. */
  readonly epoch?: number;
  /** What `better-compute batch sign-approvers` prints; sig as base64url or bytes. */
  readonly setSignatures?: readonly { readonly kid: string; readonly sig: string | Uint8Array }[];
}

const invalid = (message: string, reason = 'approvers'): ControlError<'INVALID_CONFIG'> =>
  new ControlError('INVALID_CONFIG', message, { details: { reason } });

/** @throws INVALID_CONFIG with every fault of the set */
export function quorumOfOptions(options: ApproversOptions): QuorumFields {
  const { keys, threshold, tiers = [], unbatchedDestructivePerHour = 0, epoch, setSignatures = [] } = options;
  if (keys.length === 0) throw invalid('pki.approvers has no keys: leave it out where nobody approves');
  if (setSignatures.length > 0 && epoch === undefined)
    throw invalid('pki.approvers.setSignatures is given without pki.approvers.epoch: the epoch is what they sign', 'approver-epoch');
  const approverSetEpoch = epoch ?? 1;
  if (!Number.isSafeInteger(approverSetEpoch) || approverSetEpoch < 1)
    throw invalid(`pki.approvers.epoch ${approverSetEpoch} is not a whole number from 1`, 'approver-epoch');
  return validateQuorum({
    approverKeys: keys.map(entryOf),
    approverThreshold: threshold,
    tiers: tiers.map(({ maxScopeSize, threshold: least }) => ({ maxScopeSize, threshold: least })),
    unbatchedDestructivePerHour,
    approverSetSignatures: setSignatures.map(({ kid, sig }) => ({ kid, sig: bytesOf(kid, sig) })),
    approverSetEpoch,
  });
}

/** The id is of the bytes as they are: a key that is not canonical is told by validateQuorum, with its place. */
function entryOf(spki: Uint8Array): QuorumFields['approverKeys'][number] {
  return { kid: createHash('sha256').update(canonical(spki)).digest('hex'), spki };
}

function canonical(spki: Uint8Array): Uint8Array {
  try {
    return parseP256Spki(spki);
  } catch {
    return spki;
  }
}

function bytesOf(kid: string, sig: string | Uint8Array): Uint8Array {
  const bytes = typeof sig === 'string' ? Buffer.from(sig, 'base64url') : sig;
  const isExact = typeof sig !== 'string' || Buffer.from(bytes).toString('base64url') === sig;
  if (isExact && bytes.length === 64) return bytes;
  throw invalid(`the signature of ${kid.slice(0, 12)} under the approver set is not 64 bytes in base64url`, 'approver-signature');
}

/** One document of `batch sign-approvers`. Other fields are for people. */
export interface SetSignatureDocument {
  readonly epoch: number;
  /** Lower-case hex over the set that was signed. */
  readonly approverSetSha256: string;
  readonly kid: string;
  /** base64url */
  readonly sig: string;
}

/** As read from the environment and its files (runtime/approver-files.ts). */
export interface ApproverFiles {
  readonly keys: readonly Uint8Array[];
  readonly threshold: number;
  readonly unbatchedDestructivePerHour: number;
  readonly setSignatures: readonly { readonly path: string; readonly document: unknown }[];
}

/** @throws INVALID_CONFIG for a document that is none, or that signs another set or epoch than the others */
export function quorumOfFiles({ keys, threshold, unbatchedDestructivePerHour, setSignatures }: ApproverFiles): QuorumFields {
  const documents = setSignatures.map(({ path, document }) => ({ path, ...parseDocument(path, document) }));
  const [first] = documents;
  const other = documents.find(({ epoch }) => epoch !== first?.epoch);
  if (first !== undefined && other !== undefined) {
    throw invalid(
      `BETTER_COMPUTE_APPROVER_SET_SIGNATURES: ${first.path} signs epoch ${first.epoch}, ${other.path} epoch ${other.epoch}: they must sign one`,
      'approver-epoch',
    );
  }
  const quorum = quorumOfOptions({
    keys,
    threshold,
    unbatchedDestructivePerHour,
    ...(first === undefined ? {} : { epoch: first.epoch, setSignatures: documents.map(({ kid, sig }) => ({ kid, sig })) }),
  });
  const digest = approverSetDigest(quorum);
  const foreign = documents.find(({ approverSetSha256 }) => approverSetSha256 !== digest);
  if (foreign === undefined) return quorum;
  throw invalid(
    `BETTER_COMPUTE_APPROVER_SET_SIGNATURES: ${foreign.path} signs the set ${foreign.approverSetSha256.slice(0, 12)}, but BETTER_COMPUTE_APPROVER_KEYS, _APPROVER_THRESHOLD and _UNBATCHED_PER_HOUR make ${digest.slice(0, 12)} (a set with tiers comes by pki.approvers or rotateApproverSet)`,
    'approver-set-differs',
  );
}

function parseDocument(path: string, document: unknown): SetSignatureDocument {
  const { epoch, approverSetSha256, kid, sig } = (typeof document === 'object' && document !== null ? document : {}) as Partial<
    Record<keyof SetSignatureDocument, unknown>
  >;
  const isWhole = typeof epoch === 'number' && Number.isSafeInteger(epoch) && epoch >= 1;
  if (isWhole && isHex(approverSetSha256) && isHex(kid) && typeof sig === 'string') return { epoch, approverSetSha256, kid, sig };
  throw invalid(
    `BETTER_COMPUTE_APPROVER_SET_SIGNATURES: ${path} is no document of batch sign-approvers (epoch, approverSetSha256, kid, sig)`,
    'approver-signature',
  );
}

const isHex = (value: unknown): value is string => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);
