/**
 * Certificates of nodes: reserve, sign, store (H-15). A serial is in the database before anything is signed under it; a
 * certificate counts only once it is stored, and it is stored only if neither it nor the identity was revoked meanwhile. So a
 * crash at any point leaves a reserved serial that no gateway accepts, never a certificate that nobody knows of.
 */
import { createHash } from 'node:crypto';
import type { NodeRole } from '../domain/commands/kinds.ts';
import { ControlError } from '../domain/errors.ts';
import { day } from '../domain/time.ts';
import { type Executor, instant } from '../drizzle/client.ts';
import {
  agentProfiles,
  type Certificate,
  type CertificateAuthority,
  createSerial,
  formatSpiffeId,
  issueLeaf,
  kidOf,
  parseCertificate,
  type SpiffeIdentity,
} from '../pki/x509/index.ts';

/** The node CA of this deployment. */
export interface NodeAuthority extends CertificateAuthority {
  /** 91-byte DER of its key: names the issuer in node_certs, whatever certificate the key has now. */
  readonly spki: Uint8Array;
}

export interface CertificateOrder {
  readonly identity: SpiffeIdentity;
  readonly role: NodeRole;
  readonly generation: number;
  readonly spki: Uint8Array;
  /** `urn:bc:` statements about the key, copied from the certificate before (RENEW-010). */
  readonly statements: readonly string[];
  readonly now: number;
}

export interface Reservation extends CertificateOrder {
  readonly issuer: string;
  readonly serial: string;
}

/** How node_certs names an authority. */
export const issuerOf = (spki: Uint8Array): string => kidOf(spki);
export const spkiSha256 = (spki: Uint8Array): Buffer => createHash('sha256').update(spki).digest();

const reserve = {
  name: 'node-certs-reserve',
  text: `insert into node_certs (issuer, serial, node_id, site_id, spiffe_id, role, generation, uri_sans, spki_sha256, not_before, not_after, reserved_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $10)`,
};

/** Takes a serial for this order. The times are those of the widest certificate it may become. */
export async function reserveSerial(tx: Executor, authority: NodeAuthority, order: CertificateOrder): Promise<Reservation> {
  const reservation = { ...order, issuer: issuerOf(authority.spki), serial: createSerial() };
  const { identity, now } = order;
  const spiffeId = formatSpiffeId(identity);
  await tx.query(reserve, [
    reservation.issuer,
    reservation.serial,
    identity.nodeId,
    identity.siteId,
    spiffeId,
    order.role,
    order.generation,
    [spiffeId, ...order.statements],
    spkiSha256(order.spki),
    instant(now),
    instant(now + day),
  ]);
  return reservation;
}

/** @throws CA_EXPIRED when the authority has under ten minutes left (H-13) */
export const signReserved = (authority: NodeAuthority, reservation: Reservation, now: number): Promise<Certificate> =>
  issueLeaf({
    ca: { certificate: authority.certificate, signer: authority.signer },
    profile: agentProfiles[reservation.role],
    spki: reservation.spki,
    identity: reservation.identity,
    sans: { uris: reservation.statements },
    now,
    serial: reservation.serial,
  });

const store = {
  name: 'node-certs-store',
  text: `update node_certs c set cert_der = $3, not_before = $4, not_after = $5, issued_at = $6
         from nodes n where c.issuer = $1 and c.serial = $2 and c.cert_der is null and c.revoked_at is null
           and n.id = c.node_id and n.state = 'active' and n.identity_generation = c.generation
         returning c.serial`,
};

/** @throws REVOKED when the identity ended between the reservation and now */
export async function storeCertificate(
  tx: Executor,
  { reservation, certificate, now }: { readonly reservation: Reservation; readonly certificate: Certificate; readonly now: number },
): Promise<void> {
  const { issuer, serial } = reservation;
  const values = [issuer, serial, certificate.der, instant(certificate.notBefore), instant(certificate.notAfter), instant(now)];
  if ((await tx.query(store, values)).length > 0) return;
  throw new ControlError('REVOKED', `the identity of node ${reservation.identity.nodeId} ended while its certificate was made`, {
    details: { reason: 'identity-ended', nodeId: reservation.identity.nodeId },
  });
}

const drop = { name: 'node-certs-unreserve', text: 'delete from node_certs where issuer = $1 and serial = $2 and cert_der is null' };

/** Gives a serial back that nothing was signed under. */
export async function releaseSerial(tx: Executor, { issuer, serial }: Reservation): Promise<void> {
  await tx.query(drop, [issuer, serial]);
}

const valid = {
  name: 'node-certs-valid',
  text: `select cert_der as der from node_certs where node_id = $1 and generation = $2 and spki_sha256 = $3
           and cert_der is not null and revoked_at is null and not_after > $4 order by issued_at desc limit 1`,
};

/** The certificate this key holds for this identity already. */
export async function findValidCertificate(
  tx: Executor,
  input: { readonly nodeId: string; readonly generation: number; readonly spki: Uint8Array; readonly now: number },
): Promise<Certificate | undefined> {
  const [row] = await tx.query<{ der: Uint8Array }>(valid, [input.nodeId, input.generation, spkiSha256(input.spki), instant(input.now)]);
  return row === undefined ? undefined : parseCertificate(row.der);
}

export interface StoredCertificate {
  readonly nodeId: string;
  readonly generation: number;
  readonly der: Uint8Array | null;
  readonly revokedAt: number | null;
}

const bySerial = {
  name: 'node-certs-by-serial',
  text: 'select node_id as "nodeId", generation, cert_der as der, revoked_at as "revokedAt" from node_certs where issuer = $1 and serial = $2',
};

export async function findCertificateRow(db: Executor, issuer: string, serial: string): Promise<StoredCertificate | undefined> {
  return (await db.query<StoredCertificate>(bySerial, [issuer, serial]))[0];
}
