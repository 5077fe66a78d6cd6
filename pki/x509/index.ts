/**
 * X.509 for one private deployment: strict reading, issuing by profile, chains, identities. Hand-written on node:crypto.
 *
 * Invariants
 * - One encoding of everything. A certificate, request, key or signature that could be written in two ways is taken in one: the
 *   shortest DER, P-256 with the named curve and the uncompressed point, ecdsa-with-SHA256 without parameters.
 * - Readers throw MALFORMED and nothing else, on any bytes whatever; what they return is frozen and backed by a private copy.
 * - Signatures are raw r‖s (64 bytes) outside certificates and requests, DER inside.
 * - What is issued follows a row of the table of profiles, never the request; it is parsed again before it leaves.
 * - A parsed certificate proves nothing about trust. Only verifyChain makes a VerifiedChain.
 *
 * Threat model: every byte that reaches a reader was chosen by an attacker, who also holds good certificates of other nodes and
 * of other authorities of this deployment. He must not be heard as another node, role or process; must not get a certificate
 * to say more than his record; must not make two readers disagree about one certificate; must not make a reader work long.
 *
 * Not done here: revocation lists (the control plane has its own feed), name constraints (any certificate with them is refused:
 * `urn:bc:` names do not work under them), RSA and other curves, wildcards, policies, time stamping, storage of keys.
 */

export { certificateId, parseCertificate } from './certificate.ts';
export { type CreateCertificateOptions, createCertificate } from './create-certificate.ts';
export { createCsr, parseCsr } from './csr.ts';
export { type DerNode, DerReader, readDer, tags } from './der-reader.ts';
export {
  encodeDer,
  encodeDerBitString,
  encodeDerBoolean,
  encodeDerInteger,
  encodeDerNode,
  encodeDerOid,
  encodeDerSequence,
  encodeDerSet,
} from './der-writer.ts';
export {
  formatSpiffeId,
  grantedIdentityOf,
  isNodeKeyStatement,
  isTrustDomain,
  nodeIdentityOf,
  nodeSpiffeIdOf,
  parseSpiffeId,
  parseTpmAkUri,
  tpmAkUri,
} from './identity.ts';
export { issueCa, issueLeaf } from './issue.ts';
export { roleAttribute } from './name.ts';
export { oids } from './oids.ts';
export { encodePem, parsePem, parsePemCertificates } from './pem.ts';
export { readPrivateKey } from './private-key.ts';
export { agentProfiles, type CaProfile, caProfiles, type LeafProfile, leafProfiles } from './profiles.ts';
export { createSerial } from './serial.ts';
export { derFromRawSignature, rawFromDerSignature, verifyRaw, verifyRawSignature } from './signature.ts';
export { signerFromPrivateKey } from './signer.ts';
export { findSpki, isSpkiPin, kidOf, parseP256Spki, publicKeyOf, spkiOf, spkiPin, unsharedPublicKey } from './spki.ts';
export type * from './types.ts';
export { verifyChain } from './verify-chain.ts';
