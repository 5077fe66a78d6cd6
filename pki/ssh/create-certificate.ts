/** Template → signed → checked: what leaves is parsed again, verified, and compared with what was asked. */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { parseSshCertificate, type SshCertificate, type SshCertificateKind } from './certificate.ts';
import { encodeOptions, type SshOptions } from './options.ts';
import { certificateTypeOf, type SshPublicKey } from './public-key.ts';
import { encodeSshSignature, type SshSigner } from './signature.ts';
import { assertSoundCertificate } from './verify-certificate.ts';
import { encodeString, encodeU32, encodeU64 } from './wire.ts';

export interface SshCertificateTemplate {
  readonly publicKey: SshPublicKey;
  readonly kind: SshCertificateKind;
  readonly serial: bigint;
  readonly keyId: string;
  readonly principals: readonly string[];
  /** Seconds since 1970. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly criticalOptions: SshOptions;
  readonly extensions: SshOptions;
}

const nonceBytes = 32;

/**
 * Signs a template. INTERNAL when the signer's answer does not make a sound certificate, or one that says something else than
 * was asked: a signer that errs makes no bad certificate. What the signer throws stays as it is.
 */
export const createSshCertificate = async (options: {
  readonly template: SshCertificateTemplate;
  readonly signer: SshSigner;
  readonly random?: (size: number) => Uint8Array;
}): Promise<SshCertificate> => {
  const { template, signer, random = randomBytes } = options;
  const body = encodeBody(template, { authority: signer.publicKey, nonce: random(nonceBytes) });
  const raw = await signer.sign(body);
  try {
    const signature = encodeSshSignature(signer.publicKey, raw);
    const certificate = parseSshCertificate(Buffer.concat([body, encodeString(signature)]));
    assertSoundCertificate(certificate);
    assertAsAsked(certificate, template);
    return certificate;
  } catch (cause) {
    throw new ControlError('INTERNAL', 'the SSH authority did not make the certificate that was asked for', {
      details: { reason: 'not-as-asked' },
      cause,
    });
  }
};

const encodeBody = (
  template: SshCertificateTemplate,
  { authority, nonce }: { readonly authority: SshPublicKey; readonly nonce: Uint8Array },
): Buffer => {
  const { publicKey, kind, serial, keyId, principals } = template;
  const typeLength = encodeString(publicKey.type).length;
  return Buffer.concat([
    encodeString(certificateTypeOf(publicKey.type)),
    encodeString(nonce),
    publicKey.blob.subarray(typeLength),
    encodeU64(serial),
    encodeU32(kind === 'user' ? 1 : 2),
    encodeString(keyId),
    encodeString(Buffer.concat(principals.map((name) => encodeString(name)))),
    encodeU64(template.validAfter),
    encodeU64(template.validBefore),
    encodeString(encodeOptions(template.criticalOptions)),
    encodeString(encodeOptions(template.extensions)),
    encodeString(''),
    encodeString(authority.blob),
  ]);
};

const assertAsAsked = (certificate: SshCertificate, template: SshCertificateTemplate): void => {
  const said = (of: SshCertificateTemplate): string =>
    JSON.stringify([
      Buffer.from(of.publicKey.blob).toString('hex'),
      of.kind,
      of.keyId,
      of.principals,
      [of.serial, of.validAfter, of.validBefore].map(String),
      [of.criticalOptions, of.extensions].map((options) => encodeOptions(options).toString('hex')),
    ]);
  if (said(certificate) !== said(template)) throw new Error('the certificate says something else');
};
