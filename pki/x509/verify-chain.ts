/**
 * Is this leaf what we think it is: the one decision about X.509 chains, taken from certificates and never from a TLS library's
 * `authorized` (H-11).
 *
 * Threat model: the peer chose every byte of the chain. Work is bounded before any of it is done (certificates, depth, signature
 * checks); junk beside a good path does not spoil it; names alone prove nothing, the issuer's key must have signed. Two
 * certificates of one authority (same name, same key, for example after a renewal) are both tried, in either order, so a
 * path exists when any of them is good.
 *
 * Not done here: revocation (the caller asks its own records), who the leaf is (identity.ts), fetching anything.
 */
import { type Code, ControlError } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { parseCertificate } from './certificate.ts';
import { ipOctets, ipText } from './general-names.ts';
import { parseKnownCertificate } from './known-certificates.ts';
import { malformed } from './malformed.ts';
import { oids } from './oids.ts';
import { rawFromDerSignature, verifyRaw } from './signature.ts';
import type { Certificate, ChainPurpose, VerifiedChain, VerifyChainOptions } from './types.ts';

const maxChainCertificates = 8;
const maxAnchors = 64;
const maxSignatureChecks = 32;
const defaultMaxDepth = 2;

type Path = readonly [Certificate, Certificate, ...Certificate[]];

const refusal = <C extends Code>(code: C, reason: string, message: string): ControlError<C> =>
  new ControlError(code, message, { details: { reason } });

const denied = (reason: string, message: string): ControlError => refusal('PERMISSION_DENIED', reason, message);

/** What a leaf must be for each purpose. */
interface PurposeRow {
  /** Every one of these, and every authority above must allow them. */
  readonly ekus: readonly string[];
  /** null: the caller decides by identity. */
  readonly role: string | null;
  /** The signer stands directly under its root, with no authority between (SIGN-005). */
  readonly isDirect: boolean;
}

const purposes: Readonly<Record<ChainPurpose, PurposeRow>> = Object.freeze({
  client: { ekus: [oids.clientAuth], role: null, isDirect: false },
  server: { ekus: [oids.serverAuth], role: null, isDirect: false },
  internal: { ekus: [oids.clientAuth, oids.serverAuth], role: null, isDirect: false },
  'command-signer': { ekus: [], role: 'worker', isDirect: true },
});

/**
 * Verifies a chain (leaf first, the rest in any order) up to one of the anchors, for one purpose, at one instant. Refusals:
 * MALFORMED (form), BAD_SIGNATURE (`unknown-issuer`, `bad-signature`), CERTIFICATE_EXPIRED (`expired`, `not-yet-valid`),
 * PERMISSION_DENIED (`not-a-ca`, `path-length`, `key-usage`, `extended-key-usage`, `ca-as-leaf`, `key-identifier`, `wrong-role`,
 * `common-name`, `server-name`). When several paths lead to an anchor and all fail, the first one's refusal is thrown.
 */
export const verifyChain = (chain: readonly Uint8Array[], options: VerifyChainOptions): VerifiedChain => {
  let first: unknown;
  for (const path of pathsOf(chain, options)) {
    try {
      return verifyPath(path, options);
    } catch (refused) {
      first ??= refused;
    }
  }
  throw first;
};

/** One path from leaf to anchor, whose names and signatures already lead from each to the next. */
const verifyPath = (path: Path, options: VerifyChainOptions): VerifiedChain => {
  assertValidity(path, options); //                   1. everything is in force now
  assertAuthorities(path); //                         2. whoever issued is an authority, and may sign certificates
  assertPathLengths(path); //                         3. no authority has more authorities below it than it may
  assertKeyIdentifiers(path); //                      4. each names its issuer's key
  assertLeaf(path); //                                5. the leaf is no authority, and its key may sign
  assertPurpose(path, purposes[options.purpose]); //  6. leaf and authorities are for this purpose
  assertCommonName(path, options); //                 7. a server's common name says nothing that its names do not
  assertServerName(path, options); //                 8. the server is the one that was asked for
  return Object.freeze({
    leaf: path[0],
    path: Object.freeze(path),
    anchor: path.at(-1),
    purpose: options.purpose,
  }) as unknown as VerifiedChain;
};

/** An instant within the second of notAfter is still valid: certificates do not know fractions. */
const assertValidity = ([leaf, ...authorities]: Path, { now, leafGraceMs = 0 }: VerifyChainOptions): void => {
  const second = Math.floor(now / 1_000) * 1_000;
  for (const certificate of [leaf, ...authorities]) {
    const graceMs = certificate === leaf ? leafGraceMs : 0;
    const who = describe(certificate);
    if (second < certificate.notBefore)
      throw refusal('CERTIFICATE_EXPIRED', 'not-yet-valid', `${who} is not valid before ${showInstant(certificate.notBefore)}`);
    if (second > certificate.notAfter + graceMs)
      throw refusal('CERTIFICATE_EXPIRED', 'expired', `${who} expired at ${showInstant(certificate.notAfter)}`);
  }
};

const describe = ({ isCa, serial }: Certificate): string => `${isCa ? 'authority' : 'certificate'} ${serial}`;

const assertAuthorities = ([, ...authorities]: Path): void => {
  for (const authority of authorities) {
    if (!authority.isCa) throw denied('not-a-ca', `certificate ${authority.serial} issued another and is no authority`);
    if (!authority.keyUsage?.includes('keyCertSign')) throw denied('key-usage', `authority ${authority.serial} may not sign certificates`);
  }
};

/** RFC 5280 6.1.4 (l, m): self-issued authorities do not count. */
const assertPathLengths = ([, ...authorities]: Path): void => {
  let below = 0;
  for (const authority of authorities) {
    if (authority.pathLen !== null && below > authority.pathLen)
      throw denied('path-length', `authority ${authority.serial} has ${below} authorities below it and may have ${authority.pathLen}`);
    if (!isSelfIssued(authority)) below += 1;
  }
};

const isSelfIssued = ({ issuer, subject }: Certificate): boolean => Buffer.compare(issuer.der, subject.der) === 0;

/** Every issued certificate names the key that issued it; a self-signed one may leave that out, but not say otherwise. */
const assertKeyIdentifiers = (path: Path): void => {
  for (const [i, certificate] of path.entries()) {
    const issuer = path[i + 1] ?? certificate;
    if (issuer.ski === null) throw denied('key-identifier', `authority ${issuer.serial} has no key identifier`);
    const isAnchor = i === path.length - 1;
    const mayDiffer = isAnchor && (certificate.aki === null || !isSelfIssued(certificate));
    if (!mayDiffer && certificate.aki !== issuer.ski)
      throw denied('key-identifier', `${describe(certificate)} does not name the key of its issuer`);
  }
};

const assertLeaf = ([leaf]: Path): void => {
  if (leaf.isCa) throw denied('ca-as-leaf', `authority ${leaf.serial} is used as a leaf`);
  if (leaf.keyUsage === null || !leaf.keyUsage.includes('digitalSignature') || leaf.keyUsage.includes('keyCertSign'))
    throw denied('key-usage', `certificate ${leaf.serial} is not for signatures, or for more than them`);
};

/** An authority without the extension is unrestricted; a leaf without it is for nothing that needs one. */
const assertPurpose = (path: Path, row: PurposeRow): void => {
  const [leaf, ...authorities] = path;
  if (row.role !== null && leaf.role !== row.role)
    throw denied('wrong-role', `certificate ${leaf.serial} has role ${leaf.role ?? '(none)'}, not ${row.role}`);
  if (row.isDirect && path.length !== 2) throw denied('path-length', `certificate ${leaf.serial} is not directly under its root`);
  for (const eku of row.ekus) {
    const refused = (leaf.ekus ?? []).includes(eku) ? authorities.find(({ ekus }) => ekus !== null && !ekus.includes(eku)) : leaf;
    if (refused !== undefined) throw denied('extended-key-usage', `${describe(refused)} is not for ${eku}`);
  }
};

/** Readers that still look at the common name of a server, and those that do not, must not see two different servers. */
const assertCommonName = ([leaf]: Path, { purpose }: VerifyChainOptions): void => {
  if (purpose !== 'server') return;
  for (const { oid, value } of leaf.subject.attributes)
    if (oid === oids.commonName && !leaf.dnsSans.includes(value) && !leaf.ipSans.includes(value))
      throw denied('common-name', `certificate ${leaf.serial} has a common name that is not among its names`);
};

/** Exact names only: no wildcards, no common name. */
const assertServerName = ([leaf]: Path, { serverName }: VerifyChainOptions): void => {
  if (serverName === undefined) return;
  const octets = ipOctets(serverName);
  const isNamed =
    octets === null ? leaf.dnsSans.some((name) => name.toLowerCase() === serverName.toLowerCase()) : leaf.ipSans.includes(ipText(octets));
  if (!isNamed) throw denied('server-name', `certificate ${leaf.serial} is not for ${JSON.stringify(serverName.slice(0, 253))}`);
};

interface Candidates {
  readonly intermediates: readonly Certificate[];
  readonly anchors: readonly Certificate[];
  /** Why the first of those that did not parse did not. */
  readonly failure: unknown;
}

/** Junk beside the path does not spoil it: what does not parse is no candidate, and is reported only when no path is found. */
const candidatesOf = (chain: readonly Uint8Array[], anchors: readonly Uint8Array[]): Candidates => {
  let failure: unknown;
  const parseAll = (certificates: readonly Uint8Array[], parse: (der: Uint8Array) => Certificate): Certificate[] =>
    certificates.flatMap((der) => {
      try {
        return [parse(der)];
      } catch (error) {
        failure ??= error;
        return [];
      }
    });
  const parsedAnchors = parseAll(anchors, parseKnownCertificate);
  return { intermediates: parseAll(chain.slice(1), parseCertificate), anchors: parsedAnchors, failure };
};

const assertBounds = (chain: readonly Uint8Array[], anchors: readonly Uint8Array[]): void => {
  if (chain.length === 0 || chain.length > maxChainCertificates)
    throw malformed('chain-length', `a chain has 1 to ${maxChainCertificates} certificates, not ${chain.length}`);
  if (anchors.length > maxAnchors)
    throw new ControlError('INVALID_INPUT', `more than ${maxAnchors} trust anchors`, { details: { reason: 'anchors' } });
};

/**
 * Every path from the leaf to an anchor by name and signature, shortest depth bounded, the number of signature checks bounded
 * over all of them. Never empty: throws when there is none.
 */
const pathsOf = (chain: readonly Uint8Array[], { anchors, maxDepth = defaultMaxDepth }: VerifyChainOptions): Path[] => {
  assertBounds(chain, anchors);
  const leaf = parseCertificate(chain[0] as Uint8Array);
  const candidates = candidatesOf(chain, anchors);
  const budget = { checks: maxSignatureChecks, sawBadSignature: false };
  const paths: Path[] = [];
  const walk = (path: readonly Certificate[]): void => {
    const last = path.at(-1) as Certificate;
    for (const anchor of candidates.anchors) if (isIssuedBy(last, anchor, budget)) paths.push([...path, anchor] as unknown as Path);
    if (path.length > maxDepth) return;
    for (const next of candidates.intermediates) if (!path.includes(next) && isIssuedBy(last, next, budget)) walk([...path, next]);
  };
  walk([leaf]);
  if (paths.length > 0) return paths;
  if (candidates.failure !== undefined) throw candidates.failure;
  if (budget.sawBadSignature)
    throw refusal('BAD_SIGNATURE', 'bad-signature', `certificate ${leaf.serial} or one above it is not signed by the issuer it names`);
  throw refusal('BAD_SIGNATURE', 'unknown-issuer', `certificate ${leaf.serial} does not lead to a trust anchor`);
};

/** Name and key identifier first, because they are cheap; then the signature, while the budget lasts. */
const isIssuedBy = (certificate: Certificate, issuer: Certificate, budget: { checks: number; sawBadSignature: boolean }): boolean => {
  if (Buffer.compare(certificate.issuer.der, issuer.subject.der) !== 0) return false;
  if (certificate.aki !== null && issuer.ski !== null && certificate.aki !== issuer.ski) return false;
  if (budget.checks === 0) return false;
  budget.checks -= 1;
  if (verifyRaw(issuer.publicKey, certificate.tbs, rawFromDerSignature(certificate.signature))) return true;
  budget.sawBadSignature = true;
  return false;
};
