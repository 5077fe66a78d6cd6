/**
 * Certificates as others make them, described once for every maker (test/oracles/go, python.ts, certtool.ts): those that have the
 * shape of ours, and those that a tool makes gladly and this PKI refuses.
 */
import { minute } from '../../domain/time.ts';

export interface CertificateShape {
  readonly key: 'p256' | 'p384' | 'rsa';
  readonly hash: 'sha256' | 'sha384';
  readonly subject: readonly (readonly ['O' | 'OU' | 'CN', string])[];
  readonly isCa: boolean;
  readonly pathLen: number | null;
  readonly keyUsage: readonly ('digitalSignature' | 'keyCertSign' | 'cRLSign')[];
  readonly ekus: readonly ('client' | 'server')[];
  readonly uris: readonly string[];
  readonly dns: readonly string[];
  readonly ips: readonly string[];
  readonly emails: readonly string[];
  /** Name constraints: only these DNS names below. */
  readonly onlyDns: readonly string[];
  /** A critical extension that nobody knows. */
  readonly hasUnknown: boolean;
  /** Whether the issuer's key is named, and how; makers that always name it by its identifier do not make the others. */
  readonly aki: 'key' | 'none' | 'issuer';
  /** Unix seconds. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/** Root first, each issued by the one before it. */
export type ChainShape = readonly CertificateShape[];

type Change = Partial<CertificateShape>;

const day = 86_400;
const seconds = Math.floor((Date.now() - minute) / 1_000);

const plain: CertificateShape = Object.freeze<CertificateShape>({
  key: 'p256',
  hash: 'sha256',
  subject: [],
  isCa: false,
  pathLen: null,
  keyUsage: ['digitalSignature'],
  ekus: [],
  uris: [],
  dns: [],
  ips: [],
  emails: [],
  onlyDns: [],
  hasUnknown: false,
  aki: 'key',
  notBefore: seconds - 60,
  notAfter: seconds + day,
});

const authority = (name: string, change: Change = {}): CertificateShape => ({
  ...plain,
  subject: [
    ['O', 'theirs.example'],
    ['CN', name],
  ],
  isCa: true,
  keyUsage: ['keyCertSign', 'cRLSign'],
  notBefore: seconds - day,
  notAfter: seconds + 30 * day,
  ...change,
});

const root = (change: Change = {}): CertificateShape => authority('their root', { pathLen: 1, ...change });
const below = (ekus: CertificateShape['ekus'], change: Change = {}): CertificateShape =>
  authority('their authority', { pathLen: 0, ekus, ...change });

const role = (name: string): CertificateShape['subject'] => [['OU', `bc-role:${name}`]];
const spiffeId = 'spiffe://theirs.example/site/a/node/b';
const node = (change: Change = {}): CertificateShape => ({
  ...plain,
  subject: role('node'),
  ekus: ['client'],
  uris: [spiffeId],
  ...change,
});
const gateway = (change: Change = {}): CertificateShape => ({
  ...plain,
  subject: role('gateway'),
  ekus: ['server'],
  dns: ['gw.theirs.example'],
  ips: ['192.0.2.7'],
  ...change,
});

export interface GoodShape {
  readonly chain: ChainShape;
  readonly purpose: 'client' | 'server' | 'internal' | 'command-signer';
  readonly role: string;
}

export const goodShapes: Readonly<Record<string, GoodShape>> = Object.freeze({
  node: { chain: [root(), below(['client']), node()], purpose: 'client', role: 'node' },
  'node with a statement about its key': {
    chain: [root(), below(['client']), node({ uris: [spiffeId, `urn:bc:tpm-ak:000b:${'ab'.repeat(32)}`] })],
    purpose: 'client',
    role: 'node',
  },
  'node directly under the root': { chain: [root(), node()], purpose: 'client', role: 'node' },
  gateway: { chain: [root(), below(['server']), gateway()], purpose: 'server', role: 'gateway' },
  internal: {
    chain: [root(), below(['server', 'client']), gateway({ subject: role('internal'), ekus: ['server', 'client'] })],
    purpose: 'internal',
    role: 'internal',
  },
  worker: {
    chain: [authority('their command root', { pathLen: 0 }), { ...plain, subject: role('worker') }],
    purpose: 'command-signer',
    role: 'worker',
  },
});

export interface RefusedShape {
  readonly chain: ChainShape;
  readonly purpose: GoodShape['purpose'];
  readonly refusal: `${string} ${string}`;
}

const client = (refusal: RefusedShape['refusal'], ...chain: ChainShape): RefusedShape => ({ chain, purpose: 'client', refusal });
const server = (refusal: RefusedShape['refusal'], ...chain: ChainShape): RefusedShape => ({ chain, purpose: 'server', refusal });

/** What is outside our rules, each with our code and reason. */
export const refusedShapes: Readonly<Record<string, RefusedShape>> = Object.freeze({
  'an RSA key in the leaf': client('MALFORMED spki', root(), below(['client']), node({ key: 'rsa' })),
  'a P-384 key in the leaf': client('MALFORMED spki', root(), below(['client']), node({ key: 'p384' })),
  'an RSA authority': client('MALFORMED signature-algorithm', root({ key: 'rsa' }), node()),
  'a signature over SHA-384': client('MALFORMED signature-algorithm', root(), node({ hash: 'sha384' })),
  'a leaf for nothing in particular': client('PERMISSION_DENIED extended-key-usage', root(), node({ ekus: [] })),
  'a server as a client': client('PERMISSION_DENIED extended-key-usage', root(), below(['server']), gateway()),
  'an authority that is not for clients': client('PERMISSION_DENIED extended-key-usage', root(), below(['server']), node()),
  'an authority as a leaf': client('PERMISSION_DENIED ca-as-leaf', root(), below(['client'])),
  'an issuer that is no authority': client('PERMISSION_DENIED not-a-ca', root(), node({ subject: [['CN', 'leaf']] }), node()),
  'an authority that may not sign certificates': client(
    'PERMISSION_DENIED key-usage',
    root(),
    below(['client'], { keyUsage: ['cRLSign'] }),
    node(),
  ),
  'more authorities than the root allows': client('PERMISSION_DENIED path-length', root({ pathLen: 0 }), below(['client']), node()),
  'a wildcard': server('MALFORMED alternative-name', root(), below(['server']), gateway({ dns: ['*.theirs.example'] })),
  'a mail address': client('MALFORMED alternative-name', root(), node({ emails: ['a@theirs.example'] })),
  'a common name that is none of the names': server(
    'PERMISSION_DENIED common-name',
    root(),
    gateway({ subject: [...role('gateway'), ['CN', 'other.theirs.example']] }),
  ),
  'name constraints': server('MALFORMED name-constraints', root(), below(['server'], { onlyDns: ['theirs.example'] }), gateway()),
  'a critical extension that nobody knows': client('MALFORMED unknown-critical-extension', root(), node({ hasUnknown: true })),
  'two roles': client('MALFORMED two-roles', root(), node({ subject: [...role('node'), ...role('site')] })),
  'a name of an issuer and a serial beside the key identifier': client('MALFORMED der-trailing', root(), node({ aki: 'issuer' })),
  'no word about the key of the issuer': client('PERMISSION_DENIED key-identifier', root(), node({ aki: 'none' })),
  'a leaf that has ended': client('CERTIFICATE_EXPIRED expired', root(), node({ notBefore: seconds - 3_600, notAfter: seconds - 60 })),
  'a leaf that has not begun': client('CERTIFICATE_EXPIRED not-yet-valid', root(), node({ notBefore: seconds + 3_600 })),
  'a worker below an authority': {
    chain: [root(), below([]), { ...plain, subject: role('worker') }],
    purpose: 'command-signer',
    refusal: 'PERMISSION_DENIED path-length',
  },
  'a node as a signer of commands': { chain: [root(), node()], purpose: 'command-signer', refusal: 'PERMISSION_DENIED wrong-role' },
});
