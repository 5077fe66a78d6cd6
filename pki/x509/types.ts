/** The nouns of the X.509 part: what a reader yields, what an issuer takes. Types only. */
import type { KeyObject } from 'node:crypto';

/**
 * A key that signs, wherever it is kept: a file, a token, another process. The signature is raw r‖s (64 bytes, IEEE P1363)
 * over SHA-256 of the input; the X.509 part turns it into DER where certificates need it.
 */
export interface Signer {
  /** The public half: a 91-byte P-256 SubjectPublicKeyInfo. */
  readonly spki: Uint8Array;
  sign(input: Uint8Array): Promise<Uint8Array>;
}

export interface NameAttribute {
  /** Dotted object identifier. */
  readonly oid: string;
  readonly value: string;
}

/** A distinguished name: the bytes decide equality, the attributes are for reading. */
export interface DistinguishedName {
  readonly der: Uint8Array;
  readonly attributes: readonly NameAttribute[];
}

export type KeyUsage =
  | 'digitalSignature'
  | 'nonRepudiation'
  | 'keyEncipherment'
  | 'dataEncipherment'
  | 'keyAgreement'
  | 'keyCertSign'
  | 'cRLSign'
  | 'encipherOnly'
  | 'decipherOnly';

/** A certificate that parsed strictly. It says nothing about trust: only verifyChain does. Frozen; bytes are a private copy. */
export interface Certificate {
  readonly der: Uint8Array;
  /** The signed bytes, as received. */
  readonly tbs: Uint8Array;
  /** The signature as it stands in the certificate: a DER ECDSA-Sig-Value. */
  readonly signature: Uint8Array;
  /** Lower-case hex of the positive integer in whole octets, without a sign octet (`0a…`, never `a…` or `00…`). */
  readonly serial: string;
  readonly issuer: DistinguishedName;
  readonly subject: DistinguishedName;
  /** Unix milliseconds. */
  readonly notBefore: number;
  /** Unix milliseconds; the certificate is valid through the whole of this second (RFC 5280 4.1.2.5). */
  readonly notAfter: number;
  /** The received 91-byte SubjectPublicKeyInfo. */
  readonly spki: Uint8Array;
  /** Made when first read. */
  readonly publicKey: KeyObject;
  readonly isCa: boolean;
  /** null: no constraint. */
  readonly pathLen: number | null;
  /** null: the extension is absent. */
  readonly keyUsage: readonly KeyUsage[] | null;
  /** Dotted identifiers; null: the extension is absent. */
  readonly ekus: readonly string[] | null;
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
  /** Canonical text (`192.0.2.1`, RFC 5952 for IPv6). */
  readonly ipSans: readonly string[];
  /** Lower-case hex; null: absent. */
  readonly ski: string | null;
  readonly aki: string | null;
  /** The role of `OU=bc-role:<role>`, else of the old role extension (ID-028, ID-029), else null. */
  readonly role: string | null;
}

export interface SpiffeIdentity {
  readonly trustDomain: string;
  readonly siteId: string;
  readonly nodeId: string;
}

/** Who a node certificate speaks for. Made by nodeIdentityOf only. */
export interface NodeIdentity extends SpiffeIdentity {
  readonly spiffeId: string;
  readonly role: AgentRole;
}

export type AgentRole = 'node' | 'site' | 'ramdisk' | 'node-tenant';

/** A certificate authority that can issue: its certificate (DER) and the key behind it. */
export interface CertificateAuthority {
  readonly certificate: Uint8Array;
  readonly signer: Signer;
}

/** Everything a certificate will say, decided before anything is signed. */
export interface CertificateTemplate {
  readonly serial: string;
  readonly subject: readonly NameAttribute[];
  readonly notBefore: number;
  readonly notAfter: number;
  readonly spki: Uint8Array;
  readonly isCa: boolean;
  /** Only for a CA; null: no constraint. */
  readonly pathLen: number | null;
  readonly keyUsage: readonly KeyUsage[];
  /** Empty: no extension. */
  readonly ekus: readonly string[];
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
  readonly ipSans: readonly string[];
}

/** Whose name and key identifier go in: an issuing certificate (DER), or `self` for a self-signed one. */
export type Issuer = { readonly certificate: Uint8Array } | 'self';

export type CaProfileName = 'rootCa' | 'nodeCa' | 'servingCa' | 'internalCa' | 'commandRoot';
export type LeafProfileName = 'worker' | 'node' | 'site' | 'ramdisk' | 'nodeTenant' | 'gateway' | 'internal';

export interface IssueLeafOptions {
  readonly ca: CertificateAuthority;
  readonly profile: LeafProfileName;
  readonly spki: Uint8Array;
  /** Agent profiles only, and required there: becomes the first URI SAN. */
  readonly identity?: SpiffeIdentity;
  /** uris: `urn:bc:` statements of an agent profile. dns, ips: gateway and internal profiles. */
  readonly sans?: { readonly uris?: readonly string[]; readonly dns?: readonly string[]; readonly ips?: readonly string[] };
  /** A CN beside the role; control-plane profiles only. For gateway and internal it must be one of the names. */
  readonly commonName?: string;
  /** Another role that the profile allows (`internal`: internal, gateway, worker-tls). Default: the profile's own. */
  readonly role?: string;
  /** Counted from `now`; default and upper bound: the profile's, then the issuer's end. */
  readonly lifetimeMs?: number;
  readonly now: number;
  /** A reserved serial (H-15); default: a new one. */
  readonly serial?: string;
}

export interface IssueCaOptions {
  readonly profile: CaProfileName;
  readonly trustDomain: string;
  /** The new authority's key: signs itself for rootCa and commandRoot. */
  readonly spki: Uint8Array;
  /** The root for nodeCa, servingCa and internalCa; for a self-signed profile the key's own signer. */
  readonly issuer: CertificateAuthority | { readonly self: Signer };
  readonly now: number;
  readonly lifetimeMs?: number;
  readonly serial?: string;
}

export type ChainPurpose = 'client' | 'server' | 'command-signer' | 'internal';

export interface VerifyChainOptions {
  /** DER certificates; an anchor is taken by its key and subject. */
  readonly anchors: readonly Uint8Array[];
  readonly now: number;
  readonly purpose: ChainPurpose;
  /** Certificates between leaf and anchor, both excluded, at most; default 2. */
  readonly maxDepth?: number;
  /** Server purpose: a DNS name or IP address that the leaf must carry. */
  readonly serverName?: string;
  /** How long past its notAfter the leaf (only the leaf) is still taken: proofs of possession (JOIN-007). Default 0. */
  readonly leafGraceMs?: number;
}

declare const verified: unique symbol;

/** A chain that verifyChain accepted; nothing else makes one. */
export interface VerifiedChain {
  readonly [verified]: true;
  readonly leaf: Certificate;
  /** Leaf first, anchor last. */
  readonly path: readonly Certificate[];
  readonly anchor: Certificate;
  readonly purpose: ChainPurpose;
}

/** A certificate request whose self-signature verified. Subject and requested extensions are never handed on. */
export interface CertificateRequest {
  readonly der: Uint8Array;
  readonly spki: Uint8Array;
}
