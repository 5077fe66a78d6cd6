/** Signing and checking one body (ENV-001 to ENV-009). The registry of purposes and the input are proto/signing-input.ts. */
import { create } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { type Purpose, type Signature, SignatureSchema, signingInput } from '../../proto/index.ts';
import { kidOf, type Signer, verifyRawSignature } from '../x509/index.ts';

/** r ‖ s of P-256; any other length is refused before a key is touched (ENV-003). */
export const signatureBytes = 64;

export type SignedParts = readonly (Uint8Array | string)[];

/**
 * Signs the parts of a purpose. The chain stays empty: the verifier pins the key (worker-key.ts adds a certificate).
 *
 * @throws RangeError when the parts are not the purpose's; INTERNAL when the signer answers something else than 64 bytes
 */
export async function signEnvelope(signer: Signer, purpose: Purpose, parts: SignedParts): Promise<Signature> {
  const sig = await signer.sign(signingInput(purpose, parts));
  if (sig.length !== signatureBytes) {
    throw new ControlError('INTERNAL', `the signer answered ${sig.length} bytes, not ${signatureBytes}`, {
      details: { reason: 'signature-length' },
    });
  }
  return create(SignatureSchema, { sig, kid: kidOf(signer.spki) });
}

export interface VerifyEnvelopeOptions {
  readonly signature: Signature | undefined;
  readonly purpose: Purpose;
  readonly parts: SignedParts;
  /** SPKI of the key that must have signed: pinned, or proven by a chain. */
  readonly key: Uint8Array;
}

/**
 * Checks a signature by one known key.
 *
 * @throws BAD_SIGNATURE: `unsigned` without one, `signature-length` unless it has 64 bytes, `other-key` when it names another
 *   key, `bad-signature` when it does not match
 */
export function verifyEnvelope({ signature, purpose, parts, key }: VerifyEnvelopeOptions): void {
  const present = assertSigned(signature, purpose);
  assertRaw(present, purpose);
  assertKid(present, key, purpose);
  assertMatches(present, { purpose, parts, key });
}

export function assertSigned(signature: Signature | undefined, purpose: Purpose): Signature {
  if (signature !== undefined) return signature;
  throw badSignature('unsigned', `the ${purpose} is not signed`);
}

/** A DER signature, or one cut short, is no signature: there is one form only, so one approval is one string of bytes. */
export function assertRaw(signature: Signature, purpose: Purpose): void {
  if (signature.sig.length !== signatureBytes)
    throw badSignature('signature-length', `the signature of the ${purpose} has ${signature.sig.length} bytes, not ${signatureBytes}`);
}

export function assertKid(signature: Signature, key: Uint8Array, purpose: Purpose): void {
  const expected = kidOf(key);
  if (signature.kid !== expected) {
    throw badSignature('other-key', `the ${purpose} names key ${short(signature.kid)}, not ${short(expected)}`);
  }
}

export function assertMatches(
  signature: Signature,
  { purpose, parts, key }: { purpose: Purpose; parts: SignedParts; key: Uint8Array },
): void {
  const good = verifyRawSignature({ spki: key, input: signingInput(purpose, parts), signature: signature.sig });
  if (!good) throw badSignature('bad-signature', `the signature of the ${purpose} does not match its bytes`);
}

/** The one error of this folder. */
export const badSignature = (reason: string, message: string, cause?: unknown): ControlError<'BAD_SIGNATURE'> =>
  new ControlError('BAD_SIGNATURE', message, { details: { reason }, ...(cause === undefined ? {} : { cause }) });

/** Enough of a kid to recognise it; never the whole of what a peer sent. */
export const short = (kid: string): string => (/^[0-9a-f]{64}$/.test(kid) ? kid.slice(0, 12) : '(not a key id)');
