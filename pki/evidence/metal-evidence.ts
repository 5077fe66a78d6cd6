/**
 * What a ramdisk signed about the disks of a machine: that they were erased, or that an image was written. Pure, so that an auditor who has
 * the file and the deployment's root judges it with the same code as the control plane, years later and without either's database.
 *
 * Invariants
 *   - The signer is a ramdisk of this deployment and speaks for the machine that is named, and for no other.
 *   - The certificate was in force when the work ended: evidence outlives it by years, the key's power does not.
 *   - Whether everything was done is computed from the disks and samples that are listed; no field is asked whether it went well.
 *
 * Threat model: whoever keeps or carries the document alters, swaps or shortens it; a machine signs for another one, with the key of its
 * former role, or after its certificate ended. What it cannot tell: whether the drive did what it said, beyond the samples; and a ramdisk
 * whose memory is another's signs what that one likes.
 */
import { createHash } from 'node:crypto';
import { toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { type EraseMethod, eraseMethods, isEraseMethod } from '../../domain/metal/erase.ts';
import {
  bounds,
  type DeployEvidence,
  DeployEvidenceSchema,
  decodeMessage,
  type ErasedDisk,
  type EraseEvidence,
  EraseEvidenceSchema,
  type SampledRange,
  type Signature,
  SignatureSchema,
  SignedSchema,
} from '../../proto/index.ts';
import { assertSigned, badSignature, verifyEnvelope } from '../envelope/envelope.ts';
import { nodeIdentityOf } from '../x509/identity.ts';
import type { Certificate } from '../x509/types.ts';
import { verifyChain } from '../x509/verify-chain.ts';

export type MetalEvidenceKind = 'erase' | 'deploy';

/** As it is stored, and as a file holds it. */
export interface SignedMetalEvidence {
  readonly kind: MetalEvidenceKind;
  /** An encoded EraseEvidence or DeployEvidence. */
  readonly body: Uint8Array;
  /** An encoded Signature with the ramdisk's chain. */
  readonly signature: Uint8Array;
}

export interface VerifyMetalEvidenceOptions {
  readonly evidence: SignedMetalEvidence;
  /** DER: the deployment's root, or its node authority. */
  readonly anchors: readonly Uint8Array[];
  readonly trustDomain: string;
}

interface Verified {
  readonly nodeId: string;
  readonly runId: string;
  readonly commandId: string;
  /** Lower-case hex. */
  readonly bootNonce: string;
  readonly finishedAtMs: number;
  readonly signer: Certificate;
  /** What is not as it should be; empty: everything that was asked for was done. */
  readonly shortcomings: readonly string[];
}

export type VerifiedMetalEvidence =
  | (Verified & { readonly kind: 'erase'; readonly body: EraseEvidence })
  | (Verified & { readonly kind: 'deploy'; readonly body: DeployEvidence });

const purposes = Object.freeze({ erase: 'erase-evidence', deploy: 'deploy-evidence' } as const);

/**
 * Verifies evidence.
 *
 * @throws MALFORMED for bytes that are none; BAD_SIGNATURE, CERTIFICATE_EXPIRED or PERMISSION_DENIED (wrong-role, wrong-machine,
 *   wrong-trust-domain) for a signer that does not count
 */
export function verifyMetalEvidence({ evidence, anchors, trustDomain }: VerifyMetalEvidenceOptions): VerifiedMetalEvidence {
  const body = decodeBody(evidence); //                           1. it can be read
  const signature = decodeSignature(evidence); //                 2. it is signed
  const finishedAtMs = instantOf(body.finishedAtMs); //           3. at a time that is one
  const now = finishedAtMs;
  const { leaf } = verifyChain(signature.chain, { anchors, now, purpose: 'client' }); // 4. by a certificate in force then
  verifyEnvelope({ signature, purpose: purposes[evidence.kind], parts: [evidence.body], key: leaf.spki }); // 5. over these bytes
  assertSigner(leaf, body, trustDomain); //                       6. of this machine's ramdisk
  const { nodeId, runId, commandId } = body;
  const verified = { nodeId, runId, commandId, bootNonce: hex(body.bootNonce), finishedAtMs, signer: leaf };
  return evidence.kind === 'erase'
    ? { ...verified, kind: 'erase', body: body as EraseEvidence, shortcomings: shortcomingsOfErase(body as EraseEvidence) }
    : { ...verified, kind: 'deploy', body: body as DeployEvidence, shortcomings: shortcomingsOfDeploy(body as DeployEvidence) };
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const malformed = (what: string, cause?: unknown): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `the evidence ${what}`, {
    details: { reason: 'metal-evidence' },
    ...(cause === undefined ? {} : { cause }),
  });

/** The samples of a storage server's disks are more fields than any frame has: 6,000 of them in all (disk-wipe.ts), six fields each. */
const longEvidence = Object.freeze({ bound: 'commandResultPayload', maxFields: 40_960 });

function decodeBody({ kind, body }: SignedMetalEvidence): EraseEvidence | DeployEvidence {
  if (body.length > bounds.commandResultPayload)
    throw malformed(`has ${body.length} bytes, at most ${bounds.commandResultPayload} are read`);
  try {
    return kind === 'erase'
      ? decodeMessage(EraseEvidenceSchema, body, longEvidence)
      : decodeMessage(DeployEvidenceSchema, body, longEvidence);
  } catch (cause) {
    throw malformed(`is no ${kind} evidence`, cause);
  }
}

function decodeSignature({ kind, signature }: SignedMetalEvidence): Signature {
  let message: Signature;
  try {
    message = decodeMessage(SignatureSchema, signature, 'joinRequest');
  } catch (cause) {
    throw malformed('has a signature that does not decode', cause);
  }
  const signed = assertSigned(message, purposes[kind]);
  if (signed.chain.length > 0) return signed;
  throw badSignature('no-chain', `the ${purposes[kind]} does not carry the certificate of its signer`);
}

function instantOf(value: bigint): number {
  if (value > 0n && value < 8_640_000_000_000_000n) return Number(value);
  throw malformed(`ended at ${value} ms, which is no time`);
}

function assertSigner(leaf: Certificate, { nodeId, trustDomain: said }: EraseEvidence | DeployEvidence, trustDomain: string): void {
  const identity = nodeIdentityOf(leaf, trustDomain);
  const refuse = (reason: string, message: string): never => {
    throw new ControlError('PERMISSION_DENIED', message, { details: { reason, nodeId } });
  };
  if (identity.role !== 'ramdisk') refuse('wrong-role', `evidence about disks is signed by a ramdisk, not by a ${identity.role}`);
  if (identity.nodeId !== nodeId) refuse('wrong-machine', `the ramdisk of ${identity.nodeId} signed for machine ${nodeId}`);
  if (said !== trustDomain) refuse('wrong-trust-domain', `the evidence is of trust domain ${said}, not ${trustDomain}`);
}

/** Counts what is listed (M49, M50): a list of nothing proves nothing. */
function shortcomingsOfErase({ disks }: EraseEvidence): string[] {
  if (disks.length === 0) return ['it lists no disk'];
  const zeroDigest = zeroDigests();
  return disks.flatMap((one, index) =>
    shortcomingsOfDisk(one, zeroDigest).map((text) => `disk ${index + 1} (${one.disk?.serial || one.disk?.wwn || 'no serial'}): ${text}`),
  );
}

function shortcomingsOfDisk({ erased, method, samples, detail }: ErasedDisk, zeroDigest: ZeroDigest): string[] {
  if (!erased) return [`was not erased${detail === '' ? '' : `: ${detail}`}`];
  if (!isEraseMethod(method)) return [`${method === '' ? 'no method' : JSON.stringify(method.slice(0, 64))} is no erasure`];
  const unproven = samples.filter((sample) => !provesErasure(method, sample, zeroDigest)).length;
  return [
    ...(samples.length === 0 ? ['nothing was read back'] : []),
    ...(unproven > 0 ? [`${unproven} of ${samples.length} samples do not show that it was`] : []),
  ];
}

/** Computed from the digests again (domain/metal/erase.ts judgeSample): what was there is gone, and where the method leaves zeros, they are there. */
function provesErasure(method: EraseMethod, sample: SampledRange, zeroDigest: ZeroDigest): boolean {
  const { clean, length, beforeSha256: before, afterSha256: after } = sample;
  if (!clean || after.length !== 32) return false;
  const isZero = isSame(after, zeroDigest(length));
  if (before.length === 0) return isZero;
  return !isSame(before, after) && (eraseMethods[method].leaves === 'changed' || isZero);
}

const largestSample = 64 * 1024;
/** Samples are as long as 4 KiB or a block: a machine has disks of few block sizes, and each length costs a hash of so many bytes. */
const mostLengths = 8;

type ZeroDigest = (length: number) => Buffer;

/** For one document. Empty for a length that no sample has, and for more lengths than the disks of a machine have. */
function zeroDigests(): ZeroDigest {
  const known = new Map<number, Buffer>();
  return (length) => {
    const found = known.get(length);
    if (found !== undefined) return found;
    if (length === 0 || length > largestSample || known.size === mostLengths) return Buffer.alloc(0);
    const digest = createHash('sha256').update(Buffer.alloc(length)).digest();
    known.set(length, digest);
    return digest;
  };
}

const isSame = (a: Uint8Array, b: Uint8Array): boolean => a.length > 0 && Buffer.from(a).equals(b);

function shortcomingsOfDeploy({ writtenBytes, writtenSha256, readbackSha256, imageSha256 }: DeployEvidence): string[] {
  return [
    ...(writtenBytes > 0n ? [] : ['nothing was written']),
    ...(/^[0-9a-f]{64}$/.test(imageSha256) ? [] : ['it does not say which image']),
    ...(writtenSha256.length === 32 && isSame(writtenSha256, readbackSha256) ? [] : ['what was read back is not what was written']),
  ];
}

/**
 * Splits what a ramdisk answered.
 *
 * @param signed an encoded Signed
 * @throws MALFORMED
 */
export function splitSignedEvidence(kind: MetalEvidenceKind, signed: Uint8Array): SignedMetalEvidence {
  try {
    const { body, signature } = decodeMessage(SignedSchema, signed, 'commandResultPayload');
    if (signature === undefined) throw badSignature('unsigned', `the ${purposes[kind]} is not signed`);
    return { kind, body, signature: toBinary(SignatureSchema, signature) };
  } catch (cause) {
    if (cause instanceof ControlError) throw cause;
    throw malformed('does not decode', cause);
  }
}
