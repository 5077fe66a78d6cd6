/**
 * The manufacturer's word for an endorsement key: a certificate that leads to a root which the operator named. Read by OpenSSL, not by
 * the strict reader of our own certificates: manufacturers write RSA keys, empty subjects and extensions of their own.
 *
 * It says that the key is in a genuine TPM of that manufacturer, and nothing of whose machine it is in: such a TPM costs a few coins. It
 * is asked for beside the inventory, never in place of it. Not asked for: revocation lists of manufacturers, which few of them keep.
 */
import { X509Certificate } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { malformed, refused } from './refusals.ts';

/** tcg-kp-EKCertificate. */
const endorsementUse = '2.23.133.8.1';
const maxCertificates = 4;
const maxCertificateBytes = 8 * 1024;
const pemBlock = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g;

export interface EndorsementRoots {
  readonly certificates: readonly X509Certificate[];
}

/** @throws MALFORMED naming the block that is no certificate of an authority, or when there is none at all */
export function parseEndorsementRoots(pem: string): EndorsementRoots {
  const certificates = [...pem.matchAll(pemBlock)].map(([block], at) => {
    const certificate = readCertificate(block, `certificate ${at + 1}`);
    if (!certificate.ca) throw malformed(`certificate ${at + 1}`, `of ${oneLine(certificate.subject)} is not that of an authority`);
    return certificate;
  });
  if (certificates.length === 0) throw malformed('the file', 'holds no PEM certificate');
  return { certificates };
}

export interface VerifyEndorsementOptions {
  readonly roots: EndorsementRoots;
  /** SPKI of the endorsement key that has to be certified. */
  readonly spki: Uint8Array;
  readonly now: number;
}

/**
 * @param chain DER, the endorsement key's own first, then what leads towards a root
 * @throws MALFORMED; PERMISSION_DENIED with reason tpm-ek-certificate (none, another key's, another use's), tpm-ek-untrusted;
 *   CERTIFICATE_EXPIRED
 */
export function verifyEndorsementChain(chain: readonly Uint8Array[], { roots, spki, now }: VerifyEndorsementOptions): void {
  if (chain.length > maxCertificates) throw malformed('ekCertificates', `are ${chain.length}, more than ${maxCertificates}`);
  const [leaf, ...above] = chain.map((der, at) => readCertificate(der, `ekCertificates[${at}]`));
  if (leaf === undefined) throw refused('tpm-ek-certificate', 'the TPM showed no certificate of its endorsement key');
  assertCertifies(leaf, spki); //                        1. this key, for this use
  const used = climb(leaf, above, roots); //             2. up to a root that the operator named
  for (const certificate of used) assertInForce(certificate, now); // 3. now
}

function readCertificate(bytes: Uint8Array | string, field: string): X509Certificate {
  if (bytes.length > maxCertificateBytes) throw malformed(field, `has ${bytes.length} bytes, more than ${maxCertificateBytes}`);
  try {
    return new X509Certificate(bytes);
  } catch {
    throw malformed(field, 'is no certificate');
  }
}

function assertCertifies(leaf: X509Certificate, spki: Uint8Array): void {
  if (!spkiOfCertificate(leaf).equals(spki)) throw refused('tpm-ek-certificate', 'the certificate is of another endorsement key');
  if (leaf.ca) throw refused('tpm-ek-certificate', 'the certificate of the endorsement key is that of an authority');
  const uses = leaf.keyUsage as readonly string[] | undefined;
  if (uses === undefined || uses.includes(endorsementUse)) return;
  throw refused('tpm-ek-certificate', `the certificate is for ${uses.join(', ')}, not for an endorsement key`);
}

function spkiOfCertificate(certificate: X509Certificate): Buffer {
  try {
    return certificate.publicKey.export({ type: 'spki', format: 'der' });
  } catch {
    throw malformed('ekCertificates[0]', 'holds a key that cannot be read');
  }
}

/** Each authority is the issuer of the one below by name and by signature; what is left over in the list plays no part. */
function climb(leaf: X509Certificate, above: readonly X509Certificate[], { certificates: roots }: EndorsementRoots): X509Certificate[] {
  const used = [leaf];
  for (let at = leaf, left = above; ; ) {
    const root = roots.find((one) => isIssuedBy(at, one));
    if (root !== undefined) return [...used, root];
    const next = left.find((one) => one.ca && isIssuedBy(at, one));
    if (next === undefined)
      throw refused(
        'tpm-ek-untrusted',
        `the certificate of ${oneLine(at.issuer)} leads to none of the ${roots.length} roots that are trusted here`,
      );
    used.push(next);
    left = left.filter((one) => one !== next);
    at = next;
  }
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  try {
    return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
  } catch {
    return false;
  }
}

function assertInForce({ validFrom, validTo, subject }: X509Certificate, now: number): void {
  if (Date.parse(validFrom) <= now && now < Date.parse(validTo)) return;
  throw new ControlError('CERTIFICATE_EXPIRED', `the certificate of ${oneLine(subject)} is not in force at ${showInstant(now)}`, {
    details: { reason: 'tpm-ek-expired', hint: `it is valid from ${validFrom} to ${validTo}` },
  });
}

/** Of a name that came from outside. */
const oneLine = (name: string | undefined): string => JSON.stringify((name ?? '').replaceAll('\n', ', ').slice(0, 200));
