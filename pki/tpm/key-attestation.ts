/**
 * The attestation of a node's key by the attestation key of its machine's TPM (RENEW-008), one form for joining and renewing.
 *
 * The node's key is in software (docs/adr/0008): no TPM can certify it as an object of its own. The attestation key signs a quote
 * that was asked for with the digest of the node's public key and of what this very request is bound to. That proves: whoever asks
 * for this certificate has this TPM at hand now. It does not prove that the node's key cannot be copied.
 */
import { createHash } from 'node:crypto';
import { type KeyAttestation, signingInput } from '../../proto/index.ts';
import { assertAttestationKey, parseTpmPublic, type TpmPublic } from './public-area.ts';
import { parseQuote, verifyTpmSignature } from './quote.ts';
import { refused } from './refusals.ts';

export interface AttestedKey {
  /** DER SubjectPublicKeyInfo of the node's new key. */
  readonly spki: Uint8Array;
  /** What the request is bound to: at a join the secret of the challenge, at a renewal its signed statement. */
  readonly request: Uint8Array;
}

/** 32 bytes: the qualifying data of the quote. */
export const attestedDigest = ({ spki, request }: AttestedKey): Uint8Array =>
  createHash('sha256')
    .update(signingInput('key-attestation', [spki, request]))
    .digest();

/**
 * @param akName the name that has to have signed: of the key that answered the challenge, or that the certificate states
 * @returns the attestation key
 * @throws MALFORMED; PERMISSION_DENIED (tpm-other-ak, tpm-ak-attributes, tpm-other-key); BAD_SIGNATURE (tpm-signature)
 */
export function verifyKeyAttestation(attestation: Omit<KeyAttestation, '$typeName'>, attested: AttestedKey, akName: Uint8Array): TpmPublic {
  const { akPublic, quote, signature } = attestation;
  const ak = parseTpmPublic(akPublic, 'akPublic');
  if (!Buffer.from(ak.name).equals(akName)) throw refused('tpm-other-ak', 'another attestation key speaks for the new key'); // 1. that key
  assertAttestationKey(ak); //                                                   2. which is what its name says
  verifyTpmSignature(ak, quote, signature); //                                   3. signed exactly this
  const { extraData } = parseQuote(quote); //                                    4. of its own TPM
  if (Buffer.from(extraData).equals(attestedDigest(attested))) return ak; //     5. about this key and request
  throw refused('tpm-other-key', 'the attestation is about another key or another request');
}
