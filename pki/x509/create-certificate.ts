/**
 * Template, sign, check: nothing leaves here that was not read again.
 *
 * The check parses the finished certificate with the strict reader, as any verifier will, and compares every field with the
 * template; that catches a fault of the writer or of its caches for each certificate, and costs little. The signature is
 * verified too, by default for every certificate. A verification costs more than twice a signature (some 65 µs to 25 µs),
 * so mass issuing may ask for `sampled`: the first certificate of each signer and every 64th after it. What a sample cannot
 * catch, a signer that fails now and then, harms nobody but the holder: his certificate is refused wherever he shows it,
 * first by himself when he joins.
 */
import { ControlError } from '../../domain/errors.ts';
import { parseCertificate, signatureAlgorithm } from './certificate.ts';
import { encodeDerBitString, encodeDerSequence } from './der-writer.ts';
import { parseKnownCertificate } from './known-certificates.ts';
import { derFromRawSignature, verifyRaw } from './signature.ts';
import { keyIdentifierOf, parseP256Spki } from './spki.ts';
import { encodeTbs } from './tbs.ts';
import type { Certificate, CertificateTemplate, Issuer, Signer } from './types.ts';

export interface CreateCertificateOptions {
  readonly template: CertificateTemplate;
  readonly issuer: Issuer;
  readonly signer: Signer;
  /** Whether each signature is verified, or a sample of them. Default: each. */
  readonly verification?: 'each' | 'sampled';
}

const sampleEvery = 64;
const signed = new WeakMap<Signer, number>();

/** The certificate, checked, as DER. */
export const createCertificate = async (options: CreateCertificateOptions): Promise<Uint8Array> => (await makeCertificate(options)).der;

/**
 * The certificate, checked, parsed. INVALID_INPUT: the template contradicts itself or cannot be written. INVALID_CONFIG: the
 * signer is not the issuer's key. INTERNAL: what was signed is not what was asked for.
 */
export const makeCertificate = async (options: CreateCertificateOptions): Promise<Certificate> => {
  const { template, signer } = options;
  const issuer = options.issuer === 'self' ? null : parseKnownCertificate(options.issuer.certificate);
  assertTemplate(template);
  assertSigner(signer, issuer === null ? template.spki : issuer.spki);
  const tbs = encodeTbs(template, issuer);
  const raw = await signer.sign(tbs);
  const certificate = parseCertificate(encodeDerSequence(tbs, signatureAlgorithm, encodeDerBitString(derFromRawSignature(raw))));
  assertAsked(certificate, template, issuer);
  if (isDue(signer, options.verification ?? 'each')) assertSigned(issuer ?? certificate, tbs, raw);
  return certificate;
};

const invalid = (reason: string, message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason } });

const assertTemplate = ({ isCa, pathLen, keyUsage, notBefore, notAfter, subject, spki, ...names }: CertificateTemplate): void => {
  parseP256Spki(spki);
  if (notBefore % 1_000 !== 0 || notAfter % 1_000 !== 0 || notAfter < notBefore) throw invalid('validity', `not a period in whole seconds: ${notBefore} to ${notAfter}`);
  if (isCa !== keyUsage.includes('keyCertSign')) throw invalid('key-usage', 'an authority signs certificates, and nothing else does');
  if (pathLen !== null && !(isCa && Number.isInteger(pathLen) && pathLen >= 0 && pathLen < 128)) throw invalid('path-length', `not a path length: ${pathLen}`);
  if (subject.length === 0 && (isCa || names.uriSans.length + names.dnsSans.length + names.ipSans.length === 0)) throw invalid('subject', 'a certificate without names says nothing');
};

const assertSigner = (signer: Signer, spki: Uint8Array): void => {
  if (Buffer.compare(signer.spki, spki) !== 0) throw new ControlError('INVALID_CONFIG', "the signer's key is not the issuer's", { details: { reason: 'signer-mismatch' } });
};

const isDue = (signer: Signer, verification: 'each' | 'sampled'): boolean => {
  if (verification === 'each') return true;
  const count = signed.get(signer) ?? 0;
  signed.set(signer, count + 1);
  return count % sampleEvery === 0;
};

const fault = (what: string): ControlError => new ControlError('INTERNAL', `the signed certificate has another ${what} than was asked for`, { details: { reason: 'signed-other', what } });

const sameBytes = (left: Uint8Array, right: Uint8Array): boolean => Buffer.compare(left, right) === 0;

const sameList = (left: readonly string[], right: readonly string[]): boolean => left.length === right.length && left.every((item, i) => item === right[i]);

type Comparison = (made: Certificate, asked: CertificateTemplate, issuer: Certificate | null) => boolean;

/** Row by row: what the certificate says, against what the template asks. */
const comparisons: ReadonlyArray<readonly [string, Comparison]> = [
  ['serial', (made, asked) => made.serial === asked.serial],
  ['issuer', (made, _, issuer) => sameBytes(made.issuer.der, (issuer ?? made).subject.der)],
  ['subject', (made, asked) => made.subject.attributes.length === asked.subject.length && asked.subject.every(({ oid, value }, i) => made.subject.attributes[i]?.oid === oid && made.subject.attributes[i]?.value === value)],
  ['validity', (made, asked) => made.notBefore === asked.notBefore && made.notAfter === asked.notAfter],
  ['key', (made, asked) => sameBytes(made.spki, asked.spki)],
  ['authority', (made, asked) => made.isCa === asked.isCa && made.pathLen === asked.pathLen],
  ['key usage', (made, asked) => sameList(made.keyUsage ?? [], asked.keyUsage)],
  ['extended key usage', (made, asked) => sameList(made.ekus ?? [], asked.ekus)],
  ['URI names', (made, asked) => sameList(made.uriSans, asked.uriSans)],
  ['DNS names', (made, asked) => sameList(made.dnsSans, asked.dnsSans)],
  ['IP addresses', (made, asked) => sameList(made.ipSans, asked.ipSans)],
  ['subject key identifier', (made, asked) => made.ski === keyIdentifierOf(asked.spki).toString('hex')],
  ['authority key identifier', (made, _, issuer) => made.aki === (issuer?.ski ?? null)],
];

const assertAsked = (made: Certificate, asked: CertificateTemplate, issuer: Certificate | null): void => {
  for (const [what, isSame] of comparisons) if (!isSame(made, asked, issuer)) throw fault(what);
};

const assertSigned = (issuer: Certificate, tbs: Uint8Array, raw: Uint8Array): void => {
  if (!verifyRaw(issuer.publicKey, tbs, raw)) throw fault('signature');
};
