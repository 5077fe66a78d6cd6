/**
 * Who is at the other end: the client certificate, judged anew at every stream open (H-11).
 *
 * `authorized` is never read: Node says true for a resumed session that presented no certificate. Identity comes from the
 * certificate bytes; a resumed session is refused even though tickets are off. OpenSSL's own verdict is not asked either:
 * the chain is verified here against the node authorities, with expiry, revocation, trust domain and role.
 */
import type { X509Certificate } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { isControlError } from '../../domain/errors.ts';
import { kidOf, type NodeIdentity, nodeIdentityOf, type VerifiedChain, verifyChain } from '../../pki/x509/index.ts';
import { refusal } from '../grpc/refusals.ts';
import type { SessionPeer } from '../session/contract.ts';

/** DER, leaf first; empty when the client presented none. */
export function peerChainOf(socket: TLSSocket): Uint8Array[] {
  if (socket.isSessionReused()) throw refusal('session-resumed');
  const chain: Uint8Array[] = [];
  let next: X509Certificate | undefined = socket.getPeerX509Certificate();
  while (next !== undefined && chain.length < longestChain) {
    chain.push(next.raw);
    next = next.issuerCertificate;
  }
  return chain;
}

/** Leaf, authority, root: no honest client sends more. */
const longestChain = 4;

export interface CertificateRef {
  /** Hex SHA-256 over the SPKI of the authority that signed the leaf. */
  readonly issuer: string;
  /** Lower-case hex. */
  readonly serial: string;
}

export interface Peer extends CertificateRef {
  readonly identity: NodeIdentity;
  readonly notAfter: number;
  /** As presented: DER, leaf first. */
  readonly chain: readonly Uint8Array[];
}

export interface PeerRules {
  readonly anchors: readonly Uint8Array[];
  readonly trustDomain: string;
  readonly now: number;
  isRevoked(certificate: CertificateRef): boolean;
}

/**
 * The checks, in order; each refuses with its own reason.
 *
 * @throws no-client-certificate, client-certificate-expired, client-certificate-invalid, wrong-trust-domain, revoked
 */
export function verifyPeer(chain: readonly Uint8Array[], rules: PeerRules): Peer {
  if (chain.length === 0) throw refusal('no-client-certificate');
  const verified = verifyClientChain(chain, rules);
  const identity = identityOf(verified, rules.trustDomain);
  const certificate = certificateRefOf(verified);
  if (rules.isRevoked(certificate)) throw refusal('revoked');
  return { ...certificate, identity, notAfter: verified.leaf.notAfter, chain };
}

export function certificateRefOf(verified: VerifiedChain): CertificateRef {
  const authority = verified.path[1] ?? verified.anchor;
  return { issuer: kidOf(authority.spki), serial: verified.leaf.serial };
}

/** The peer as its session knows it. */
export const sessionPeerOf = (
  { identity, issuer, serial, notAfter }: Peer,
  { remoteAddress, remotePort }: { readonly remoteAddress?: string | undefined; readonly remotePort?: number | undefined },
): SessionPeer => ({
  nodeId: identity.nodeId,
  role: identity.role,
  certIssuer: issuer,
  certSerial: serial,
  certNotAfter: notAfter,
  address: `${remoteAddress ?? ''}:${remotePort ?? 0}`,
});

function verifyClientChain(chain: readonly Uint8Array[], { anchors, now }: PeerRules): VerifiedChain {
  // Daemons send their authority along; one that is an anchor already needs no second parse and no second signature check.
  const unknown = chain.filter((der, at) => at === 0 || !anchors.some((anchor) => Buffer.compare(anchor, der) === 0));
  try {
    return verifyChain(unknown, { anchors, now, purpose: 'client' });
  } catch (cause) {
    const isExpired = isControlError(cause) && cause.code === 'CERTIFICATE_EXPIRED';
    throw refusal(isExpired ? 'client-certificate-expired' : 'client-certificate-invalid', { cause });
  }
}

function identityOf({ leaf }: VerifiedChain, trustDomain: string): NodeIdentity {
  try {
    return nodeIdentityOf(leaf, trustDomain);
  } catch (cause) {
    const reason = isControlError(cause) ? cause.details['reason'] : undefined;
    if (reason === 'wrong-trust-domain') throw refusal('wrong-trust-domain', { cause });
    throw refusal(reason === 'wrong-role' ? 'wrong-role' : 'client-certificate-invalid', { cause });
  }
}
