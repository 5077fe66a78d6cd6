/** Makers of TPMs, and their certificates for endorsement keys: of @peculiar/x509, not of our own issuing code. */
import { webcrypto } from 'node:crypto';
import '../pki/x509/reflect.ts';
import * as x509 from '@peculiar/x509';
import { day } from '../../domain/time.ts';
import { t0 } from '../services/support.ts';

x509.cryptoProvider.set(webcrypto);

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

export interface Maker {
  readonly keys: webcrypto.CryptoKeyPair;
  readonly certificate: x509.X509Certificate;
}

export interface Endorsing {
  readonly subject: string;
  readonly isCa: boolean;
  /** Unix milliseconds. */
  readonly until: number;
  /** OIDs; null: the certificate names no use. */
  readonly uses: readonly string[] | null;
}

const make = (
  publicKey: webcrypto.CryptoKey,
  issuer: { readonly name: string; readonly key: webcrypto.CryptoKey },
  { subject, isCa, until, uses }: Endorsing,
): Promise<x509.X509Certificate> =>
  x509.X509CertificateGenerator.create({
    serialNumber: '01',
    subject,
    issuer: issuer.name,
    notBefore: new Date(t0 - day),
    notAfter: new Date(until),
    signingAlgorithm: algorithm,
    publicKey,
    signingKey: issuer.key,
    extensions: [new x509.BasicConstraintsExtension(isCa), ...(uses === null ? [] : [new x509.ExtendedKeyUsageExtension([...uses])])],
  });

/** A root, or what one certified. */
export async function makerOf(subject: string, issuer?: Maker): Promise<Maker> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  const by =
    issuer === undefined ? { name: subject, key: keys.privateKey } : { name: issuer.certificate.subject, key: issuer.keys.privateKey };
  return { keys, certificate: await make(keys.publicKey, by, { subject, isCa: true, until: t0 + day, uses: null }) };
}

/** A certificate of an endorsement key, by its SPKI: P-256 or RSA. */
export async function endorse(spki: Uint8Array, issuer: Maker, changes: Partial<Endorsing> = {}): Promise<x509.X509Certificate> {
  const kind = spki.length === 91 ? algorithm : { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' };
  const key = await webcrypto.subtle.importKey('spki', spki, kind, true, ['verify']);
  const by = { name: issuer.certificate.subject, key: issuer.keys.privateKey };
  return make(key, by, { subject: 'CN=TPM', isCa: false, until: t0 + day, uses: ['2.23.133.8.1'], ...changes });
}
