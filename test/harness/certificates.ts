/** Authorities and leaves of a deployment that exists for one test. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { hour } from '../../domain/time.ts';
import { type CertificateAuthority, encodePem, issueCa, issueLeaf, kidOf, signerFromPrivateKey, spkiOf } from '../../pki/x509/index.ts';

export const trustDomain = 'test.example';

export interface TestAuthorities {
  readonly root: CertificateAuthority;
  readonly nodeCa: CertificateAuthority;
  readonly servingCa: CertificateAuthority;
  readonly internalCa: CertificateAuthority;
  readonly now: number;
}

export interface TestLeaf {
  readonly keyPem: string;
  /** Leaf and its authority. */
  readonly chainPem: string;
  readonly chain: readonly Uint8Array[];
  readonly serial: string;
  /** Hex SHA-256 over the authority's SPKI. */
  readonly issuer: string;
  readonly notAfter: number;
  readonly key: KeyObject;
}

const newKey = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;

async function authority(
  profile: 'nodeCa' | 'servingCa' | 'internalCa',
  root: CertificateAuthority,
  now: number,
): Promise<CertificateAuthority> {
  const key = newKey();
  const { der } = await issueCa({ profile, trustDomain, spki: spkiOf(key), issuer: root, now });
  return { certificate: der, signer: signerFromPrivateKey(key) };
}

export async function createAuthorities(now: number = Date.now()): Promise<TestAuthorities> {
  const signer = signerFromPrivateKey(newKey());
  const { der } = await issueCa({ profile: 'rootCa', trustDomain, spki: signer.spki, issuer: { self: signer }, now });
  const root = { certificate: der, signer };
  const [nodeCa, servingCa, internalCa] = await Promise.all([
    authority('nodeCa', root, now),
    authority('servingCa', root, now),
    authority('internalCa', root, now),
  ]);
  return { root, nodeCa, servingCa, internalCa, now };
}

export const nodeCaPem = ({ nodeCa }: TestAuthorities): string => encodePem('CERTIFICATE', nodeCa.certificate);

function leafOf(ca: CertificateAuthority, key: KeyObject, certificate: { der: Uint8Array; serial: string; notAfter: number }): TestLeaf {
  const chain = [certificate.der, ca.certificate];
  return {
    key,
    keyPem: String(key.export({ type: 'pkcs8', format: 'pem' })),
    chainPem: chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
    chain,
    serial: certificate.serial,
    issuer: kidOf(ca.signer.spki),
    notAfter: certificate.notAfter,
  };
}

export interface NodeLeafOptions {
  readonly trustDomain?: string;
  readonly profile?: 'node' | 'site' | 'ramdisk' | 'nodeTenant';
  readonly lifetimeMs?: number;
  readonly now?: number;
  readonly ca?: CertificateAuthority;
}

export async function nodeLeaf(authorities: TestAuthorities, nodeId: string, options: NodeLeafOptions = {}): Promise<TestLeaf> {
  const key = newKey();
  const ca = options.ca ?? authorities.nodeCa;
  const certificate = await issueLeaf({
    ca,
    profile: options.profile ?? 'node',
    spki: spkiOf(key),
    identity: { trustDomain: options.trustDomain ?? trustDomain, siteId: 'site-1', nodeId },
    lifetimeMs: options.lifetimeMs ?? hour,
    now: options.now ?? authorities.now,
  });
  return leafOf(ca, key, certificate);
}

export async function hostLeaf(
  authorities: TestAuthorities,
  profile: 'gateway' | 'internal',
  { dns = ['gw.test'], role }: { dns?: readonly string[]; role?: string } = {},
): Promise<TestLeaf> {
  const key = newKey();
  const ca = profile === 'gateway' ? authorities.servingCa : authorities.internalCa;
  const certificate = await issueLeaf({
    ca,
    profile,
    spki: spkiOf(key),
    sans: { dns, ips: ['127.0.0.1'] },
    now: authorities.now,
    ...(role === undefined ? {} : { role }),
  });
  return leafOf(ca, key, certificate);
}
