/**
 * Who a certificate speaks for: `spiffe://<trust-domain>/site/<siteId>/node/<nodeId>` as the first URI SAN, then at most three
 * `urn:bc:<kind>:<value>` statements about the node's key, which are never identities (ID-001 to ID-021).
 *
 * These are SPIFFE ids. A certificate that also carries a statement is not an X.509-SVID, which allows one URI SAN only.
 */
import { ControlError } from '../../domain/errors.ts';
import { malformed } from './malformed.ts';
import { roleOf } from './name.ts';
import type { AgentRole, Certificate, NodeIdentity, SpiffeIdentity } from './types.ts';

export const maxUriSans = 4;

const maxSpiffeIdBytes = 2_048;
const maxStatementBytes = 512;
const trustDomainPattern = /^[a-z0-9._-]{1,255}$/;
const segment = '(?!\\.{1,2}(?:/|$))[A-Za-z0-9._-]+';
const spiffePattern = new RegExp(`^spiffe://([a-z0-9._-]{1,255})/site/(${segment})/node/(${segment})$`);
const statementPattern = /^urn:bc:[a-z][a-z0-9-]*:[\x21-\x7e]+$/;
const tpmAkPattern = /^urn:bc:tpm-ak:([0-9a-f]{4}):((?:[0-9a-f]{2}){20,64})$/;
const tpmAkPrefix = 'urn:bc:tpm-ak:';

const agentRoles: ReadonlySet<string> = new Set<AgentRole>(['node', 'site', 'ramdisk', 'node-tenant']);

const isAgentRole = (role: string | null): role is AgentRole => role !== null && agentRoles.has(role);

/** Lower-case a-z, 0-9, `.`, `-` and `_`, up to 255 characters (ID-003, ID-004). */
export const isTrustDomain = (text: string): boolean => trustDomainPattern.test(text);

/** MALFORMED for anything but the one shape of path, an authority with port or user, or a query. */
export const parseSpiffeId = (uri: string): SpiffeIdentity => {
  const match = uri.length <= maxSpiffeIdBytes ? spiffePattern.exec(uri) : null;
  if (match === null)
    throw malformed(
      'spiffe-id',
      `not of the form spiffe://<trust-domain>/site/<siteId>/node/<nodeId>: ${JSON.stringify(uri.slice(0, 200))}`,
    );
  const [, trustDomain, siteId, nodeId] = match as unknown as [string, string, string, string];
  return Object.freeze({ trustDomain, siteId, nodeId });
};

/** INVALID_INPUT when a part would not read back as itself. */
export const formatSpiffeId = ({ trustDomain, siteId, nodeId }: SpiffeIdentity): string => {
  const uri = `spiffe://${trustDomain}/site/${siteId}/node/${nodeId}`;
  const match = uri.length <= maxSpiffeIdBytes ? spiffePattern.exec(uri) : null;
  if (match?.[1] !== trustDomain || match[2] !== siteId || match[3] !== nodeId)
    throw new ControlError('INVALID_INPUT', `a SPIFFE id cannot hold trust domain, site or node of ${JSON.stringify(uri.slice(0, 200))}`, {
      details: { reason: 'spiffe-id' },
    });
  return uri;
};

/** `urn:bc:<kind>:<value>` in printable ASCII (ID-011). */
export const isNodeKeyStatement = (uri: string): boolean => uri.length <= maxStatementBytes && statementPattern.test(uri);

/** The one URI SAN that is not a statement (ID-018); null when there is none, or more than one (ID-021). */
export const nodeSpiffeIdOf = (uriSans: readonly string[]): string | null => {
  const others = uriSans.filter((uri) => !isNodeKeyStatement(uri));
  return others.length === 1 ? (others[0] as string) : null;
};

const denied = (reason: string, message: string): ControlError<'PERMISSION_DENIED'> =>
  new ControlError('PERMISSION_DENIED', message, { details: { reason } });

/**
 * Who this node certificate speaks for in this deployment. PERMISSION_DENIED, with details.reason: `no-identity` (no SPIFFE id,
 * two of them, or one that is not first or not of our shape), `wrong-trust-domain`, `wrong-role`. Call it on a verified leaf.
 */
export const nodeIdentityOf = (certificate: Certificate, trustDomain: string): NodeIdentity => {
  const { uriSans, dnsSans, role } = certificate;
  const spiffeId = nodeSpiffeIdOf(uriSans);
  if (spiffeId === null || spiffeId !== uriSans[0] || uriSans.length > maxUriSans || dnsSans.length > 0)
    throw denied('no-identity', 'the certificate does not carry exactly one SPIFFE id, first among its URIs');
  const identity = spiffeIdentityOf(spiffeId);
  if (identity.trustDomain !== trustDomain)
    throw denied('wrong-trust-domain', `the certificate is of trust domain ${identity.trustDomain}, not ${trustDomain}`);
  if (!isAgentRole(role)) throw denied('wrong-role', `the certificate's role ${role ?? '(none)'} is not one of an agent`);
  return Object.freeze({ ...identity, spiffeId, role });
};

/**
 * The same as a daemon reads it: the role counts only in the subject (ID-030). A control plane of a release ago may still hold
 * certificates with the former extension; a daemon is never given one. PERMISSION_DENIED as nodeIdentityOf.
 */
export const grantedIdentityOf = (certificate: Certificate, trustDomain: string): NodeIdentity => {
  if (roleOf(certificate.subject.attributes) === null) throw denied('wrong-role', "the certificate's subject names no role");
  return nodeIdentityOf(certificate, trustDomain);
};

const spiffeIdentityOf = (spiffeId: string): SpiffeIdentity => {
  try {
    return parseSpiffeId(spiffeId);
  } catch (cause) {
    throw new ControlError('PERMISSION_DENIED', 'the SPIFFE id of the certificate is not one of a node', {
      details: { reason: 'no-identity' },
      cause,
    });
  }
};

/** The statement for a TPM name: two bytes of hash algorithm, then a digest of 20 to 64 bytes (ID-015). INVALID_INPUT otherwise. */
export const tpmAkUri = (name: Uint8Array): string => {
  if (name.length < 22 || name.length > 66)
    throw new ControlError('INVALID_INPUT', `a TPM name has 22 to 66 bytes, not ${name.length}`, { details: { reason: 'tpm-ak' } });
  const hex = Buffer.from(name).toString('hex');
  return `${tpmAkPrefix}${hex.slice(0, 4)}:${hex.slice(4)}`;
};

/** The TPM name a statement carries; null when it is not this statement; MALFORMED when it is and its value is wrong. */
export const parseTpmAkUri = (uri: string): Uint8Array | null => {
  if (!uri.startsWith(tpmAkPrefix)) return null;
  const match = tpmAkPattern.exec(uri);
  if (match === null) throw malformed('tpm-ak', `not of the form ${tpmAkPrefix}<nameAlg>:<digest>: ${JSON.stringify(uri.slice(0, 200))}`);
  return Uint8Array.from(Buffer.from(`${match[1]}${match[2]}`, 'hex'));
};
