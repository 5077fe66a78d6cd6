/**
 * OpenSSH certificates and revocation lists, by hand on node:crypto: the formats are short, and no library writes them.
 *
 * Invariants
 * - Readers throw MALFORMED or UNSUPPORTED naming the field, and nothing else, on any bytes; what they return is frozen.
 * - 64-bit numbers are BigInt from the wire to the answer.
 * - Ed25519 and P-256 certify; users may also have security keys. RSA is read for its form and certified by nobody.
 * - Names are one line of text everywhere: a line end in a key id, principal or comment would be a line of somebody's file.
 * - What is signed is parsed and verified again before it leaves.
 *
 * Threat model: certificates, keys, names and lists come from an attacker who also holds good certificates for other nodes and
 * of the other authority. He must not get in anywhere but where a certificate names him, for longer than it says, or after it
 * is revoked; and must not make a pattern, a second key or a second line out of a name.
 *
 * Not done here: the protocol itself (sshd and ssh do that), storage of issuances, when to revoke.
 */
export {
  assertDistinctSshAuthorities,
  type BreakGlassAuthority,
  type BreakGlassRequest,
  createBreakGlassAuthority,
  createSandboxAuthority,
  createSshSerial,
  type HostRequest,
  type IssuedSshCertificate,
  type IssuedUserCertificate,
  parseSshCaLine,
  type SandboxAuthority,
  type SandboxRequest,
  type SshAuthorityOptions,
  type SshCertificateAuthority,
} from './authority.ts';
export {
  encodeSshCertificateLine,
  forever,
  parseSshCertificate,
  parseSshCertificateLine,
  type SshCertificate,
  type SshCertificateKind,
} from './certificate.ts';
export { createSshCertificate, type SshCertificateTemplate } from './create-certificate.ts';
export { createKrl, type KrlContent } from './create-krl.ts';
export { ed25519KeyOf, verifyEd25519 } from './ed25519.ts';
export { type GuestUserDataOptions, renderGuestUserData } from './guest-user-data.ts';
export { findRevocation, type Krl, maxKrlBytes, parseKrl, type Revocation } from './krl.ts';
export type { SshOptions } from './options.ts';
export {
  encodeSshKeyLine,
  parseSshKeyBlob,
  parseSshKeyLine,
  type SshKeyType,
  type SshPublicKey,
  sshFingerprint,
  sshKeyOf,
} from './public-key.ts';
export { type SshSigner, sshSignerFromPrivateKey } from './signature.ts';
export { type SshTrustFiles, sshCertAuthorityLine, sshTrustFiles } from './trust-lines.ts';
export { assertSignature, assertSoundCertificate, type VerifySshCertificateOptions, verifySshCertificate } from './verify-certificate.ts';
