import type { KeyObject } from 'node:crypto';
import type {
  Certificate,
  CertificateRequest,
  CertificateTemplate,
  IssueCaOptions,
  IssueLeafOptions,
  Issuer,
  NameAttribute,
  NodeIdentity,
  Signer,
  SpiffeIdentity,
  VerifiedChain,
  VerifyChainOptions,
} from './types.ts';

export type * from './types.ts';

/** Strict DER certificate; throws MALFORMED. */
export declare function parseCertificate(der: Uint8Array): Certificate;
/** Certificates of a PEM text, in order, as DER; MALFORMED when it holds anything else or none. */
export declare function parsePemCertificates(pem: string): Uint8Array[];
export declare function encodePem(label: string, der: Uint8Array): string;

/** Lower-case hex SHA-256 of the DER certificate: the id of a root. */
export declare function certificateId(der: Uint8Array): string;
/** 16 random bytes behind one 0x01 octet, as 34 hex digits. */
export declare function createSerial(random?: (bytes: number) => Uint8Array): string;

/** template → sign → check. */
export declare function createCertificate(options: {
  readonly template: CertificateTemplate;
  readonly issuer: Issuer;
  readonly signer: Signer;
}): Promise<Uint8Array>;
/** The parsed certificate; `.der` is what to store and send. */
export declare function issueLeaf(options: IssueLeafOptions): Promise<Certificate>;
export declare function issueCa(options: IssueCaOptions): Promise<Certificate>;

export declare function signerFromPrivateKey(key: KeyObject): Signer;
/** Raw 64-byte signature over SHA-256(input). */
export declare function verifyRawSignature(options: {
  readonly spki: Uint8Array;
  readonly input: Uint8Array;
  readonly signature: Uint8Array;
}): boolean;
export declare function createCsr(options: {
  readonly key: Signer | KeyObject;
  readonly subject?: readonly NameAttribute[];
}): Promise<Uint8Array>;
export declare function parseCsr(der: Uint8Array): CertificateRequest;

export declare function verifyChain(chain: readonly Uint8Array[], options: VerifyChainOptions): VerifiedChain;

/** The strict 91-byte form only; returns a copy. MALFORMED otherwise. */
export declare function parseP256Spki(der: Uint8Array): Uint8Array;
/** A KeyObject of a strict SPKI, on the curve. */
export declare function publicKeyOf(spki: Uint8Array): KeyObject;
/** The 91-byte SPKI of a P-256 key. */
export declare function spkiOf(key: KeyObject): Uint8Array;
export declare function spkiPin(spki: Uint8Array): string;
export declare function isSpkiPin(text: string): boolean;
export declare function kidOf(spki: Uint8Array): string;

export declare function isTrustDomain(text: string): boolean;
export declare function parseSpiffeId(uri: string): SpiffeIdentity;
export declare function formatSpiffeId(identity: SpiffeIdentity): string;
export declare function isNodeKeyStatement(uri: string): boolean;
export declare function nodeSpiffeIdOf(uriSans: readonly string[]): string | null;
export declare function nodeIdentityOf(certificate: Certificate, trustDomain: string): NodeIdentity;
/** name: the TPM name, two bytes of algorithm and the digest. */
export declare function tpmAkUri(name: Uint8Array): string;
/** The TPM name; null when the URI is another statement; MALFORMED when it is this one and wrong. */
export declare function parseTpmAkUri(uri: string): Uint8Array | null;
