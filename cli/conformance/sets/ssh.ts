/** OpenSSH: ssh-cert, ssh-krl, and the signatures of their authorities: ed25519. */
import { ControlError } from '../../../domain/errors.ts';
import {
  assertSignature,
  assertSoundCertificate,
  ed25519KeyOf,
  findRevocation,
  parseKrl,
  parseSshCertificateLine,
  parseSshKeyLine,
  type SshCertificate,
  type SshPublicKey,
  sshFingerprint,
  verifyEd25519,
} from '../../../pki/ssh/index.ts';
import { base64Field, type Case, hexField, textField } from '../case.ts';

export const judgeEd25519 = (read: Case): void => {
  const key = ed25519KeyOf(hexField(read, 'spki'));
  if (!verifyEd25519(key, hexField(read, 'msg'), hexField(read, 'sig')))
    throw new ControlError('BAD_SIGNATURE', 'the signature is not by this key', { details: { reason: 'bad-signature' } });
};

/** The fields as `ssh-keygen -L` has them; 64-bit numbers as text, times in seconds. */
const fieldsOf = (certificate: SshCertificate): Record<string, unknown> => ({
  type: certificate.type,
  kind: certificate.kind,
  publicKey: sshFingerprint(certificate.publicKey.blob),
  signingCa: sshFingerprint(certificate.authority.blob),
  signingCaType: certificate.authority.type,
  keyId: certificate.keyId,
  serial: String(certificate.serial),
  validAfter: String(certificate.validAfter),
  validBefore: String(certificate.validBefore),
  principals: certificate.principals,
  criticalOptions: Object.fromEntries(certificate.criticalOptions),
  extensions: Object.fromEntries(certificate.extensions),
});

/** Sound whoever asks and whenever: a case names no trusted authority, principal or instant. */
export const judgeSshCert = (read: Case): unknown => {
  const certificate = parseSshCertificateLine(textField(read, 'text'));
  assertSoundCertificate(certificate);
  return fieldsOf(certificate);
};

const isCertificateLine = (text: string): boolean => /^[^ ]+-cert-v01@openssh\.com /.test(text);

const subjectOf = (text: string): SshCertificate | SshPublicKey => {
  if (!isCertificateLine(text)) return parseSshKeyLine(text.replace(/\n$/, ''));
  const certificate = parseSshCertificateLine(text);
  assertSignature(certificate);
  return certificate;
};

/** Does the list revoke this certificate, or this key. */
export const judgeSshKrl = (read: Case): boolean =>
  findRevocation(parseKrl(base64Field(read, 'krlB64')), subjectOf(textField(read, 'text'))) !== null;
