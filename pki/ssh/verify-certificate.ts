/** Is this certificate what we think it is: the one decision about SSH certificates, in the order of its clauses. */
import { ControlError } from '../../domain/errors.ts';
import type { SshCertificate, SshCertificateKind } from './certificate.ts';
import { findRevocation, type Krl } from './krl.ts';
import { assertCriticalOptions } from './options.ts';
import { keyKindOf, type SshPublicKey } from './public-key.ts';
import { denied, unsupported } from './refusals.ts';
import { verifySshSignature } from './signature.ts';

/** Host names as they are: a list, a wildcard or a negation in one would be a pattern to a reader (SBX-021). */
export const isPlainHostName = (name: string): boolean => /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$/.test(name);

/**
 * What must hold of every certificate, whoever asks and whenever: our kinds of keys, a signature by the authority it names,
 * options that somebody enforces, names that are names. UNSUPPORTED, BAD_SIGNATURE, PERMISSION_DENIED (`no-principals`,
 * `host-name`, `host-options`).
 */
export const assertSoundCertificate = (certificate: SshCertificate): void => {
  const { publicKey, authority, kind } = certificate;
  const may = keyKindOf(publicKey.type);
  if (!keyKindOf(authority.type).mayCertify)
    throw unsupported('certificate.signature_key', `is ${authority.type}: no authority here has one`);
  if (!(kind === 'user' ? may.mayBeUser : may.mayBeHost))
    throw unsupported('certificate.type', `is ${publicKey.type}: no ${kind} here has one`);
  assertSignature(certificate);
  assertCriticalOptions(certificate.criticalOptions);
  // OpenSSH up to 9.2 takes a host certificate without names for any host.
  if (certificate.principals.length === 0) throw denied('no-principals', `certificate ${certificate.serial} names nobody`);
  if (kind === 'host') assertHost(certificate);
};

/** BAD_SIGNATURE unless the authority named in the certificate signed it. */
export const assertSignature = ({ authority, signed, signature, serial }: SshCertificate): void => {
  if (!verifySshSignature(authority, signed, signature))
    throw new ControlError('BAD_SIGNATURE', `SSH certificate ${serial} is not signed by the authority it names`, {
      details: { reason: 'bad-signature' },
    });
};

const assertHost = ({ principals, criticalOptions, extensions, serial }: SshCertificate): void => {
  const pattern = principals.find((name) => !isPlainHostName(name));
  if (pattern !== undefined) throw denied('host-name', `certificate ${serial} is for ${JSON.stringify(pattern)}, which is no plain name`);
  if (criticalOptions.size > 0 || extensions.size > 0) throw denied('host-options', `host certificate ${serial} has options`);
};

export interface VerifySshCertificateOptions {
  /** Keys that are trusted for this kind of certificate. */
  readonly authorities: readonly SshPublicKey[];
  readonly kind: SshCertificateKind;
  /** One of its names, exactly. */
  readonly principal: string;
  /** Unix milliseconds. */
  readonly now: number;
  readonly krl?: Krl;
}

const sameKey = (a: SshPublicKey, b: SshPublicKey): boolean => Buffer.compare(a.blob, b.blob) === 0;

/**
 * As sshd decides (and as sshd does not: an unknown option, a name that is a pattern). Refusals of assertSoundCertificate, and
 * BAD_SIGNATURE (`unknown-authority`), PERMISSION_DENIED (`wrong-kind`, `wrong-principal`), CERTIFICATE_EXPIRED (`expired`,
 * `not-yet-valid`), REVOKED.
 */
export const verifySshCertificate = (certificate: SshCertificate, options: VerifySshCertificateOptions): void => {
  const { serial, kind, principals } = certificate;
  if (!options.authorities.some((authority) => sameKey(authority, certificate.authority)))
    //  1. an authority that is trusted
    throw new ControlError('BAD_SIGNATURE', `SSH certificate ${serial} is by an authority that is not trusted here`, {
      details: { reason: 'unknown-authority' },
    });
  assertSoundCertificate(certificate); //                                                      2. signed it, and it is sound
  if (kind !== options.kind) throw denied('wrong-kind', `SSH certificate ${serial} is for a ${kind}, not for a ${options.kind}`); // 3.
  if (!principals.includes(options.principal))
    //                                              4. for the one who is named
    throw denied('wrong-principal', `SSH certificate ${serial} does not name ${JSON.stringify(options.principal.slice(0, 256))}`);
  assertTime(certificate, options.now); //                                                     5. now
  const revocation = options.krl === undefined ? null : findRevocation(options.krl, certificate); // 6. and not revoked
  if (revocation !== null) throw new ControlError('REVOKED', `SSH certificate ${serial} is revoked`, { details: { reason: revocation } });
};

const assertTime = ({ validAfter, validBefore, serial }: SshCertificate, now: number): void => {
  const second = BigInt(Math.floor(now / 1_000));
  const expired = (reason: string, word: string): ControlError =>
    new ControlError('CERTIFICATE_EXPIRED', `SSH certificate ${serial} ${word}`, {
      details: { reason, hint: 'have a new one issued: better-compute ssh sign' },
    });
  if (second < validAfter) throw expired('not-yet-valid', 'is not valid yet');
  if (second >= validBefore) throw expired('expired', 'has expired');
};
