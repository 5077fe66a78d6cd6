/**
 * Template, sign, check: nothing leaves here that was not read again.
 *
 * By default the check is whole: the strict reader parses the finished certificate as any verifier will, every field is compared
 * with the template, and the signature is verified. That costs more than the signature itself (a verification takes some 65 µs, a
 * signature 25 µs), which does not matter for authorities, workers and gateways.
 *
 * Agents come by the ten thousand after an outage, so their check is whole for the first certificate of each kind and issuer and
 * for every 256th after it, and otherwise reads back what differs between two certificates of one kind (findAskedKey) and the form
 * of the signature. What a sample cannot catch, a signer that fails now and then, harms its holder only: the certificate is
 * refused wherever it is shown, first by the machine that joins with it.
 */
import { ControlError } from '../../domain/errors.ts';
import { type CertificateBody, certificateOf, parseOwned, signatureAlgorithm } from './certificate.ts';
import { DerReader, tags } from './der-reader.ts';
import { parseKnownCertificate } from './known-certificates.ts';
import { derFromRawSignature, rawFromDerSignature, verifyRaw } from './signature.ts';
import { assertP256Spki, keyIdentifierOf } from './spki.ts';
import { type AskedCertificate, encodeSigned, encodeTbs, findAskedKey } from './tbs.ts';
import type { Certificate, CertificateTemplate, Issuer, NameAttribute, Signer } from './types.ts';

export interface CreateCertificateOptions {
  readonly template: CertificateTemplate;
  readonly issuer: Issuer;
  readonly signer: Signer;
}

/** The certificate, checked whole, as DER. Failures as for makeCertificate. */
export const createCertificate = async ({ template, issuer, signer }: CreateCertificateOptions): Promise<Uint8Array> => {
  const authority = issuer === 'self' ? null : parseKnownCertificate(issuer.certificate);
  return (await makeCertificate({ template, issuer: authority, signer })).der;
};

/** As createCertificate takes, with the issuer read. */
export interface MakeCertificateOptions {
  readonly template: CertificateTemplate;
  /** null: self-signed. */
  readonly issuer: Certificate | null;
  readonly signer: Signer;
}

/**
 * The certificate, parsed and checked: whole, or by sample for the kind of certificate that `sampledKind` stands for (everything but
 * serial, times, key and URIs is the same in all of a kind). INVALID_INPUT: the template contradicts itself or cannot be
 * written. INVALID_CONFIG: the signer is not the issuer's key. INTERNAL (`signed-other`): what was signed is not what was asked.
 */
export const makeCertificate = async ({ template, issuer, signer }: MakeCertificateOptions, sampledKind?: object): Promise<Certificate> => {
  assertTemplate(template);
  assertSigner(signer, issuer === null ? template.spki : issuer.spki);
  const asked = { template, issuer, ski: keyIdentifierOf(template.spki) };
  const tbs = encodeTbs(asked);
  const signature = derFromRawSignature(await signer.sign(tbs));
  const der = encodeSigned(tbs, signature);
  return sampledKind === undefined || issuer === null
    ? checkWhole(der, asked)
    : checkByKind({ der, signature, asked: { template, issuer, ski: asked.ski } }, sampledKind);
};

const invalid = (reason: string, message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason } });

const assertTemplate = (template: CertificateTemplate): void => {
  const { notBefore, notAfter, isCa, keyUsage } = template;
  assertP256Spki(template.spki);
  if (notBefore % 1_000 !== 0 || notAfter % 1_000 !== 0 || notAfter < notBefore)
    throw invalid('validity', `not a period in whole seconds: ${notBefore} to ${notAfter}`);
  if (isCa !== keyUsage.includes('keyCertSign')) throw invalid('key-usage', 'an authority signs certificates, and nothing else does');
  assertPathLength(template);
  assertNamed(template);
};

const assertPathLength = ({ isCa, pathLen }: CertificateTemplate): void => {
  if (pathLen !== null && !(isCa && Number.isInteger(pathLen) && pathLen >= 0 && pathLen < 128))
    throw invalid('path-length', `not a path length: ${pathLen}`);
};

const assertNamed = ({ isCa, subject, uriSans, dnsSans, ipSans }: CertificateTemplate): void => {
  if (subject.length === 0 && (isCa || uriSans.length + dnsSans.length + ipSans.length === 0))
    throw invalid('subject', 'a certificate without names says nothing');
};

const assertSigner = (signer: Signer, spki: Uint8Array): void => {
  if (!sameBytes(signer.spki, spki))
    throw new ControlError('INVALID_CONFIG', "the signer's key is not the issuer's", { details: { reason: 'signer-mismatch' } });
};

const fault = (what: string): ControlError =>
  new ControlError('INTERNAL', `the signed certificate has another ${what} than was asked for`, {
    details: { reason: 'signed-other', what },
  });

const sameBytes = (left: Uint8Array, right: Uint8Array): boolean => Buffer.compare(left, right) === 0;

const sameList = (left: readonly string[], right: readonly string[]): boolean =>
  left.length === right.length && left.every((item, i) => item === right[i]);

const sameName = (made: readonly NameAttribute[], asked: readonly NameAttribute[]): boolean =>
  made.length === asked.length && made.every(({ oid, value }, i) => oid === asked[i]?.oid && value === asked[i]?.value);

/** Row by row: what the certificate says, against what was asked. */
const comparisons: ReadonlyArray<readonly [string, (made: Certificate, asked: AskedCertificate) => boolean]> = [
  ['serial', (made, { template }) => made.serial === template.serial],
  ['issuer', (made, { issuer }) => sameBytes(made.issuer.der, (issuer ?? made).subject.der)],
  ['subject', (made, { template }) => sameName(made.subject.attributes, template.subject)],
  ['validity', (made, { template }) => made.notBefore === template.notBefore && made.notAfter === template.notAfter],
  ['key', (made, { template }) => sameBytes(made.spki, template.spki)],
  ['authority', (made, { template }) => made.isCa === template.isCa && made.pathLen === template.pathLen],
  ['key usage', (made, { template }) => sameList(made.keyUsage ?? [], template.keyUsage)],
  ['extended key usage', (made, { template }) => sameList(made.ekus ?? [], template.ekus)],
  ['URI names', (made, { template }) => sameList(made.uriSans, template.uriSans)],
  ['DNS names', (made, { template }) => sameList(made.dnsSans, template.dnsSans)],
  ['IP addresses', (made, { template }) => sameList(made.ipSans, template.ipSans)],
  ['subject key identifier', (made, { ski }) => made.ski === ski],
  ['authority key identifier', (made, { issuer }) => made.aki === (issuer === null ? null : (issuer.ski ?? keyIdentifierOf(issuer.spki)))],
];

const checkWhole = (der: Uint8Array, asked: AskedCertificate): Certificate => {
  const made = parseOwned(der);
  for (const [what, isSame] of comparisons) if (!isSame(made, asked)) throw fault(what);
  if (!verifyRaw((asked.issuer ?? made).publicKey, made.tbs, rawFromDerSignature(made.signature))) throw fault('signature');
  return made;
};

/** A certificate of a kind that was checked whole, and how many were made by its model. */
interface Model {
  readonly certificate: Certificate;
  count: number;
}

const sampleEvery = 256;
const models = new WeakMap<Certificate, WeakMap<object, Model>>();

type IssuedByAuthority = AskedCertificate & { readonly issuer: Certificate };

interface Made {
  readonly der: Uint8Array;
  /** DER ECDSA-Sig-Value. */
  readonly signature: Uint8Array;
  readonly asked: IssuedByAuthority;
}

const checkByKind = (made: Made, kind: object): Certificate => {
  const { der, asked } = made;
  const ofIssuer = models.get(asked.issuer) ?? new WeakMap<object, Model>();
  const model = ofIssuer.get(kind);
  if (model !== undefined && model.count < sampleEvery) {
    model.count += 1;
    return checkAgainst(model.certificate, made);
  }
  const certificate = checkWhole(der, asked);
  models.set(asked.issuer, ofIssuer.set(kind, { certificate, count: 1 }));
  return certificate;
};

const checkAgainst = (model: Certificate, { der, signature, asked }: Made): Certificate => {
  const outer = new DerReader(der);
  const reader = outer.open(tags.sequence);
  const tbsAt = reader.at;
  const spki = findAskedKey(reader.open(tags.sequence), asked);
  const tbs = reader.windowFrom(tbsAt);
  const isAlgorithm = reader.skip(signatureAlgorithm);
  const found = reader.readBitOctets();
  if (spki === null || !isAlgorithm || !sameBytes(found, signature) || !reader.isAtEnd || !outer.isAtEnd) throw fault('value');
  return certificateOf({ der, tbs, signature: found }, bodyLike(model, asked, spki));
};

const bodyLike = (model: Certificate, { template, ski }: IssuedByAuthority, spki: Uint8Array): CertificateBody => ({
  serial: template.serial,
  issuer: model.issuer,
  subject: model.subject,
  notBefore: template.notBefore,
  notAfter: template.notAfter,
  spki,
  role: model.role,
  extensions: {
    isCa: false,
    pathLen: null,
    keyUsage: model.keyUsage,
    ekus: model.ekus,
    uriSans: Object.freeze([...template.uriSans]),
    dnsSans: model.dnsSans,
    ipSans: model.ipSans,
    sanIsCritical: false,
    ski,
    aki: model.aki,
    formerRole: null,
  },
});
