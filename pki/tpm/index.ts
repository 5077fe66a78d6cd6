/**
 * TPM 2.0 as far as a machine is told from others by it, on node:crypto alone: public areas, credentials, quotes and the manufacturer's
 * certificates. The talking to a TPM is the daemon's (daemon/tpm).
 *
 * Invariants
 * - Readers throw MALFORMED naming the field, and nothing else, on any bytes.
 * - A key is known by its name, which is the digest of what it is and of what may be done with it.
 * - What is signed is the received bytes; nothing is encoded again to be verified.
 *
 * Threat model: every byte comes from an attacker who has TPMs of his own, genuine ones too, and everything that others ever sent. He
 * must not speak for a TPM that he cannot use at this moment.
 *
 * Not done here: which TPMs belong to the fleet (services/join), boot measurements: nothing is decided by the registers of a quote.
 */
export { credentialSecretBytes, makeCredential } from './credential.ts';
export { type EndorsementRoots, parseEndorsementRoots, verifyEndorsementChain } from './endorsement-certificate.ts';
export { attestedDigest, verifyKeyAttestation } from './key-attestation.ts';
export { assertAttestationKey, assertEndorsementKey, parseTpmPublic, spkiDigest, type TpmPublic } from './public-area.ts';
export { parseQuote, parseTpmSignature } from './quote.ts';
