/**
 * Issuing by profile. The profile decides usage, role, names and the longest life, the issuer's own end caps it, and nothing a
 * requester sent has a say (KEY-011, KEY-012, H-13).
 */
import { ControlError } from '../../domain/errors.ts';
import { minute, showInstant } from '../../domain/time.ts';
import { makeCertificate } from './create-certificate.ts';
import { ipOctets, ipText } from './general-names.ts';
import { formatSpiffeId, isNodeKeyStatement, isTrustDomain, maxUriSans } from './identity.ts';
import { parseKnownCertificate } from './known-certificates.ts';
import { roleAttribute } from './name.ts';
import { oids } from './oids.ts';
import { type CaProfile, caProfiles, type LeafProfile, leafProfiles } from './profiles.ts';
import { createSerial } from './serial.ts';
import type {
  Certificate,
  CertificateAuthority,
  CertificateTemplate,
  IssueCaOptions,
  IssueLeafOptions,
  NameAttribute,
  Signer,
} from './types.ts';

/** Clocks differ: a new certificate is valid a little before it was made. */
const backdateMs = minute;
/** An authority closer to its end than this issues nothing: its leaves would end before anyone could renew them. */
const lastIssueMs = 10 * minute;

const noNames: readonly string[] = Object.freeze([]);

const invalid = (reason: string, message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason } });

const cutToSecond = (ms: number): number => Math.floor(ms / 1_000) * 1_000;

/**
 * A leaf of one profile, signed by its authority and read again. CA_EXPIRED (`ca-expired`, with retryAfterMs) when the authority
 * has under ten minutes left; INVALID_STATE (`ca-not-yet-valid`) before it begins; PERMISSION_DENIED (`wrong-issuer`) when the
 * profile is not this authority's; INVALID_INPUT when the names are not those of the profile.
 */
export const issueLeaf = async (options: IssueLeafOptions): Promise<Certificate> => {
  const profile = leafProfiles[options.profile];
  const issuer = parseKnownCertificate(options.ca.certificate);
  assertIssuer(issuer, profile.issuedBy, profile.kind);
  const period = periodOf({
    now: options.now,
    lifetimeMs: options.lifetimeMs ?? profile.defaultLifetimeMs,
    maxLifetimeMs: profile.maxLifetimeMs,
    issuer,
  });
  const template: CertificateTemplate = {
    serial: options.serial ?? createSerial(),
    subject: subjectOf(options, profile),
    ...period,
    spki: options.spki,
    isCa: false,
    pathLen: null,
    keyUsage: profile.keyUsage,
    ekus: profile.ekus,
    ...nameReaders[profile.names](options),
  };
  return makeCertificate({ template, issuer, signer: options.ca.signer }, profile.names === 'agent' ? profile : undefined);
};

/**
 * A certificate authority. rootCa and commandRoot sign themselves (`issuer: { self }`); the others are issued by the root and end
 * no later than it (KEY-011). Refusals as for issueLeaf.
 */
export const issueCa = async (options: IssueCaOptions): Promise<Certificate> => {
  const profile = caProfiles[options.profile];
  const { certificate, signer } = issuerOf(options, profile);
  const issuer = certificate === null ? null : parseKnownCertificate(certificate);
  if (issuer !== null) assertIssuer(issuer, profile.issuedBy, profile.kind);
  const { maxLifetimeMs } = profile;
  const template: CertificateTemplate = {
    serial: options.serial ?? createSerial(),
    subject: authoritySubject(profile, options.trustDomain),
    ...periodOf({ now: options.now, lifetimeMs: options.lifetimeMs ?? maxLifetimeMs, maxLifetimeMs, issuer }),
    spki: options.spki,
    isCa: true,
    pathLen: profile.pathLen,
    keyUsage: profile.keyUsage,
    ekus: profile.ekus,
    uriSans: noNames,
    dnsSans: noNames,
    ipSans: noNames,
  };
  return makeCertificate({ template, issuer, signer });
};

const issuerOf = ({ issuer }: IssueCaOptions, profile: CaProfile): { certificate: Uint8Array | null; signer: Signer } => {
  if ('self' in issuer !== (profile.issuedBy === null))
    throw invalid(
      'issuer',
      `${profile.commonName} is ${profile.issuedBy === null ? 'signed by its own key' : `issued by ${caProfiles[profile.issuedBy].commonName}`}`,
    );
  return 'self' in issuer ? { certificate: null, signer: issuer.self } : (issuer satisfies CertificateAuthority);
};

/** The deployment stands in O when it fits (X.520 allows 64 characters); the key identifiers tell authorities apart anyway. */
const authoritySubject = ({ commonName }: CaProfile, trustDomain: string): readonly NameAttribute[] => {
  if (!isTrustDomain(trustDomain))
    throw invalid('trust-domain', `not a trust domain (1 to 255 of a-z, 0-9, '.', '-', '_'): ${JSON.stringify(trustDomain.slice(0, 300))}`);
  const organization = trustDomain.length <= 64 ? [{ oid: oids.organization, value: trustDomain }] : [];
  return [...organization, { oid: oids.commonName, value: commonName }];
};

const kinds = new WeakMap<Certificate, CaProfile['kind'] | null>();

/** KEY-008: an authority is known by its CN and its usages together; null when it is none of ours. */
const kindOf = (issuer: Certificate): CaProfile['kind'] | null => {
  const known = kinds.get(issuer);
  if (known !== undefined) return known;
  const names = issuer.subject.attributes.filter(({ oid }) => oid === oids.commonName).map(({ value }) => value);
  const isOf = ({ commonName, ekus }: CaProfile): boolean =>
    names.length === 1 && names[0] === commonName && (issuer.ekus ?? noNames).join() === ekus.join();
  const kind = issuer.isCa && issuer.ski !== null ? (Object.values(caProfiles).find(isOf)?.kind ?? null) : null;
  kinds.set(issuer, kind);
  return kind;
};

const assertIssuer = (issuer: Certificate, kind: CaProfile['kind'] | null, issued: string): void => {
  if (kind === null || kindOf(issuer) !== kind)
    throw new ControlError('PERMISSION_DENIED', `this authority does not issue certificates of profile ${issued}`, {
      details: { reason: 'wrong-issuer', issuer: issuer.serial },
    });
};

interface PeriodOptions {
  readonly now: number;
  readonly lifetimeMs: number;
  readonly maxLifetimeMs: number;
  readonly issuer: Certificate | null;
}

/** Whole seconds: a minute back for skewed clocks; forward by what was asked, the profile's bound or the issuer's end, whichever is least. */
const periodOf = ({ now, lifetimeMs, maxLifetimeMs, issuer }: PeriodOptions): { notBefore: number; notAfter: number } => {
  if (!(lifetimeMs >= 1_000)) throw invalid('lifetime', `a certificate lives a second at least, not ${lifetimeMs} ms`);
  if (issuer !== null) assertInForce(issuer, now);
  const notBefore = Math.max(cutToSecond(now - backdateMs), issuer?.notBefore ?? 0);
  const notAfter = Math.min(cutToSecond(now + Math.min(lifetimeMs, maxLifetimeMs)), issuer?.notAfter ?? Number.POSITIVE_INFINITY);
  return { notBefore, notAfter };
};

const assertInForce = (issuer: Certificate, now: number): void => {
  if (now < issuer.notBefore)
    throw new ControlError('INVALID_STATE', `the issuing authority is not valid before ${showInstant(issuer.notBefore)}`, {
      details: { reason: 'ca-not-yet-valid' },
    });
  if (issuer.notAfter - now < lastIssueMs)
    throw new ControlError(
      'CA_EXPIRED',
      `the issuing authority ends at ${showInstant(issuer.notAfter)} and issues nothing in its last ten minutes`,
      {
        details: { reason: 'ca-expired', notAfterMs: issuer.notAfter, retryAfterMs: lastIssueMs },
      },
    );
};

const roleSubjects = new Map<string, readonly NameAttribute[]>();

/** One OU with the role; a CN where the profile has room for one. */
const subjectOf = ({ role, commonName }: IssueLeafOptions, profile: LeafProfile): readonly NameAttribute[] => {
  const chosen = role ?? profile.defaultRole;
  if (!profile.roles.includes(chosen)) throw invalid('role', `profile ${profile.kind} has no role ${JSON.stringify(chosen)}`);
  if (commonName !== undefined) {
    if (profile.names === 'agent') throw invalid('subject', 'the subject of an agent is its role and nothing else');
    return [roleAttribute(chosen), { oid: oids.commonName, value: commonName }];
  }
  const known = roleSubjects.get(chosen) ?? Object.freeze([Object.freeze(roleAttribute(chosen))]);
  roleSubjects.set(chosen, known);
  return known;
};

type Names = Pick<CertificateTemplate, 'uriSans' | 'dnsSans' | 'ipSans'>;

/** ID-001, ID-009, ID-010, ID-012: the SPIFFE id, then at most three statements, and no other kind of name. */
const agentNames = ({ identity, sans = {} }: IssueLeafOptions): Names => {
  const { uris = noNames, dns = noNames, ips = noNames } = sans;
  if (identity === undefined) throw invalid('identity', 'an agent certificate needs a trust domain, a site and a node');
  if (dns.length > 0 || ips.length > 0) throw invalid('alternative-name', 'an agent certificate carries no DNS names and no addresses');
  if (!uris.every(isNodeKeyStatement)) throw invalid('statement', 'the URIs beside the SPIFFE id are urn:bc statements only');
  if (uris.length + 1 > maxUriSans) throw invalid('statement', `an agent certificate carries at most ${maxUriSans} URIs`);
  return { uriSans: [formatSpiffeId(identity), ...uris], dnsSans: noNames, ipSans: noNames };
};

const hostNames = ({ identity, commonName, sans = {} }: IssueLeafOptions): Names => {
  const { uris = noNames, dns = noNames, ips = noNames } = sans;
  if (identity !== undefined || uris.length > 0) throw invalid('identity', 'a control-plane certificate is no node');
  if (dns.length + ips.length === 0) throw invalid('alternative-name', 'a control-plane certificate needs a DNS name or an address');
  const addresses = ips.map((ip) => ipText(ipOctets(ip) ?? refuseAddress(ip)));
  if (commonName !== undefined && !dns.includes(commonName) && !addresses.includes(commonName))
    throw invalid('common-name', 'the common name of a host is one of its names');
  return { uriSans: noNames, dnsSans: dns, ipSans: addresses };
};

const refuseAddress = (ip: string): never => {
  throw invalid('alternative-name', `not an IP address: ${JSON.stringify(ip.slice(0, 64))}`);
};

const noAlternatives = ({ identity, sans = {} }: IssueLeafOptions): Names => {
  if (identity !== undefined || Object.values(sans).some((names) => names.length > 0))
    throw invalid('alternative-name', 'this profile carries no alternative names');
  return { uriSans: noNames, dnsSans: noNames, ipSans: noNames };
};

const nameReaders: Readonly<Record<LeafProfile['names'], (options: IssueLeafOptions) => Names>> = Object.freeze({
  agent: agentNames,
  host: hostNames,
  none: noAlternatives,
});
