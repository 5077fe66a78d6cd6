/**
 * Is this command, or this desired state, meant by the control plane (SIGN-005, SIGN-010 to SIGN-012, SIGN-017)? The daemon's
 * question, answered from the bytes and the roots it holds; nothing a relay says takes part.
 *
 * A signer is valid only as a worker certificate that one of the held roots signed itself. No extended key usage stands in
 * for the role (SIGN-006), no intermediate may stand between, and a root is found by its key, because two roots may bear one
 * name (C35).
 */
import { minute, showInstant } from '../../domain/time.ts';
import type { Signature } from '../../proto/index.ts';
import { type Certificate, certificateId, kidOf, parseCertificate, verifyRawSignature } from '../x509/index.ts';
import { rawFromDerSignature } from '../x509/signature.ts';
import { assertKid, assertMatches, assertRaw, badSignature, short } from './envelope.ts';
import type { IntentPurpose } from './worker-key.ts';

/** SIGN-003. */
export const maxWorkerLifetimeMs = 24 * 60 * minute;

/** Issuers backdate notBefore by this much (H-13), so a certificate spans its lifetime and this. */
const backdateMs = minute;

/** How far a daemon's clock may be behind the signer's. The end of a certificate gets none: that would lengthen its life. */
const notBeforeSkewMs = minute;

export interface VerifyIntentOptions {
  readonly purpose: IntentPurpose;
  /** The received bytes. */
  readonly body: Uint8Array;
  readonly signature: Signature | undefined;
  /** DER of the command-signing roots that are held. */
  readonly roots: readonly Uint8Array[];
  readonly now: number;
  /** Refuse what is not signed: true wherever roots are held (SIGN-011). */
  readonly required: boolean;
  readonly maxWorkerLifetimeMs?: number;
}

/** A signer that verifyIntent accepted. */
export interface VerifiedSigner {
  readonly kid: string;
  readonly rootId: string;
  readonly serial: string;
  readonly notAfter: number;
}

/**
 * @returns null only for an unsigned body that need not be signed; a signature that is present always counts (SIGN-010)
 * @throws BAD_SIGNATURE with details.reason `unsigned`, `signature-length`, `chain`, `not-a-worker`, `other-key`,
 *   `unknown-root`, `lifetime`, `signer-expired`, `signer-not-yet-valid`, `root-expired` or `bad-signature`
 */
export function verifyIntent(options: VerifyIntentOptions): VerifiedSigner | null {
  const { purpose, signature } = options;
  if (signature === undefined) return refuseUnsigned(options);
  assertRaw(signature, purpose); //                                        1. one form of signature
  const leaf = assertOneCertificate(signature, purpose); //                2. one certificate, strictly parsed
  assertWorker(leaf); //                                                   3. it is a worker's
  assertKid(signature, leaf.spki, purpose); //                             4. of the key the signature names
  const root = assertHeldRoot(leaf, options.roots); //                     5. signed by a held root, found by key
  assertLifetime(leaf, options.maxWorkerLifetimeMs ?? maxWorkerLifetimeMs); // 6. issued for a day at most
  assertValidNow({ leaf, root, now: options.now }); //                     7. valid now, and its root too
  assertMatches(signature, { purpose, parts: [options.body], key: leaf.spki }); // 8. over exactly these bytes
  return Object.freeze({ kid: kidOf(leaf.spki), rootId: certificateId(root.der), serial: leaf.serial, notAfter: leaf.notAfter });
}

function refuseUnsigned({ purpose, required }: VerifyIntentOptions): null {
  if (required) throw badSignature('unsigned', `the ${purpose} is not signed`);
  return null;
}

/** Bounded first: a chain of thousands would buy an attacker parsing time. */
function assertOneCertificate({ chain }: Signature, purpose: IntentPurpose): Certificate {
  const [der] = chain;
  if (chain.length !== 1 || der === undefined)
    throw badSignature('chain', `the signature of the ${purpose} carries ${chain.length} certificates, not 1`);
  try {
    return parseCertificate(der);
  } catch (cause) {
    throw badSignature('chain', `the signature of the ${purpose} carries a certificate that does not parse`, cause);
  }
}

function assertWorker(leaf: Certificate): void {
  const { role, isCa, keyUsage } = leaf;
  if (role === 'worker' && !isCa && keyUsage?.includes('digitalSignature') === true) return;
  throw badSignature(
    'not-a-worker',
    `the signer's certificate ${leaf.serial} is not a worker's (role ${role ?? 'none'}${isCa ? ', an authority' : ''})`,
  );
}

function assertHeldRoot(leaf: Certificate, roots: readonly Uint8Array[]): Certificate {
  for (const der of roots) {
    const root = parseCertificate(der);
    if (root.isCa && sameBytes(root.subject.der, leaf.issuer.der) && isSignedBy(leaf, root)) return root;
  }
  throw badSignature('unknown-root', `the signer ${short(kidOf(leaf.spki))} is certified by none of the ${roots.length} held roots`);
}

function isSignedBy(leaf: Certificate, root: Certificate): boolean {
  try {
    return verifyRawSignature({ spki: root.spki, input: leaf.tbs, signature: rawFromDerSignature(leaf.signature) });
  } catch {
    // A signature value that is none.
    return false;
  }
}

function assertLifetime(leaf: Certificate, longestMs: number): void {
  const spanMs = leaf.notAfter - leaf.notBefore;
  if (spanMs > longestMs + backdateMs) {
    throw badSignature('lifetime', `the signer's certificate ${leaf.serial} lives ${spanMs / 1000} s, longer than ${longestMs / 1000} s`);
  }
}

function assertValidNow({ leaf, root, now }: { leaf: Certificate; root: Certificate; now: number }): void {
  if (now < leaf.notBefore - notBeforeSkewMs) {
    throw badSignature('signer-not-yet-valid', `the signer's certificate ${leaf.serial} is valid from ${showInstant(leaf.notBefore)}`);
  }
  if (now >= endOf(leaf))
    throw badSignature('signer-expired', `the signer's certificate ${leaf.serial} expired at ${showInstant(leaf.notAfter)}`);
  if (now >= endOf(root) || now < root.notBefore - notBeforeSkewMs) {
    throw badSignature(
      'root-expired',
      `command root ${certificateId(root.der)} is valid from ${showInstant(root.notBefore)} to ${showInstant(root.notAfter)}`,
    );
  }
}

/** notAfter names a whole second, and that second is still valid (RFC 5280 4.1.2.5). */
const endOf = (certificate: Certificate): number => certificate.notAfter + 1000;

const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => Buffer.from(a).equals(b);
