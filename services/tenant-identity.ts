/**
 * A machine that is let to a tenant as a whole runs as a node of role node-tenant (ID-032 to ID-034, REV-006): it gets no secrets and no
 * destructive commands of ours, and vouches for nothing. The platform's identity ends before the tenant's begins, in one transaction.
 *
 * The same order again, with the same key, is the same lease: it gets the certificate that it has. What ends a lease is a reclaim
 * (revocation.ts).
 */
import { ControlError } from '../domain/errors.ts';
import type { Database, Executor } from '../drizzle/client.ts';
import { lockNode, type NodeFacts } from '../drizzle/queries/nodes.ts';
import { type Certificate, type CertificateRequest, parseCsr } from '../pki/x509/index.ts';
import {
  findValidCertificate,
  type NodeAuthority,
  type Reservation,
  releaseSerial,
  reserveSerial,
  signReserved,
  spkiSha256,
  storeCertificate,
} from './node-certs.ts';
import { endIdentity, type Revoked } from './revocation.ts';

export interface TenantIdentityOptions {
  readonly db: Database;
  readonly trustDomain: string;
  readonly nodeCa: NodeAuthority;
  readonly nodeId: string;
  /** DER PKCS#10 over the tenant's own key. */
  readonly csr: Uint8Array;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

export interface TenantIdentity {
  /** DER, leaf first, then the node CA. */
  readonly chain: readonly Uint8Array[];
  readonly generation: number;
  readonly notAfter: number;
}

/**
 * @throws MALFORMED or BAD_SIGNATURE for a CSR that is none; NOT_FOUND; INVALID_STATE for a node that is not an active node of the
 *   platform; CONFLICT (let-already) when the machine is let under another key; CA_EXPIRED
 */
export async function issueTenantIdentity(options: TenantIdentityOptions): Promise<TenantIdentity> {
  const { db, nodeCa } = options;
  const csr = parseCsr(options.csr);
  const { node, reservation } = await db.transaction((tx) => begin(tx, csr, options));
  const certificate = await db.transaction((tx) => issueOnce(tx, { csr, reservation }, options));
  return { chain: [certificate.der, nodeCa.certificate], generation: node.identityGeneration, notAfter: certificate.notAfter };
}

interface Begun {
  readonly node: NodeFacts;
  readonly reservation: Reservation;
}

async function begin(tx: Executor, csr: CertificateRequest, options: TenantIdentityOptions): Promise<Begun> {
  const { nodeId, trustDomain, nodeCa, actor, reason, now } = options;
  const before = await lockNode(tx, nodeId);
  if (before?.role === 'node-tenant') await assertSameLease(tx, { node: before, csr }, options);
  else {
    if (before !== undefined) assertPlatformNode(before);
    await endIdentity(tx, { nodeId, why: 'dedicated-root', actor, reason, now });
  }
  const node = (await lockNode(tx, nodeId)) as NodeFacts;
  const identity = { trustDomain, siteId: node.siteId, nodeId };
  const order = { identity, role: node.role, generation: node.identityGeneration, spki: csr.spki, statements: [], now };
  return { node, reservation: await reserveSerial(tx, nodeCa, order) };
}

function assertPlatformNode({ id, role, state }: NodeFacts): void {
  if (role === 'node' && state === 'active') return;
  throw new ControlError('INVALID_STATE', `node ${id} cannot be let: it is ${state}, in role ${role}`, {
    details: { reason: 'not-to-let', nodeId: id },
  });
}

const leased = {
  name: 'tenant-lease-key',
  text: 'select 1 from node_certs where node_id = $1 and generation = $2 and spki_sha256 <> $3 limit 1',
};

async function assertSameLease(
  tx: Executor,
  { node, csr }: { node: NodeFacts; csr: CertificateRequest },
  { nodeId }: TenantIdentityOptions,
): Promise<void> {
  const others = await tx.query(leased, [nodeId, node.identityGeneration, spkiSha256(csr.spki)]);
  if (node.state === 'active' && others.length === 0) return;
  throw new ControlError('CONFLICT', `node ${nodeId} is let already, under another key: reclaim it first`, {
    details: { reason: 'let-already', nodeId },
  });
}

/** Under the node's lock: whoever asks second finds what the first made. */
async function issueOnce(
  tx: Executor,
  { csr, reservation }: { readonly csr: CertificateRequest; readonly reservation: Reservation },
  { nodeCa, now }: TenantIdentityOptions,
): Promise<Certificate> {
  const { generation, identity } = reservation;
  await lockNode(tx, identity.nodeId);
  const known = await findValidCertificate(tx, { nodeId: identity.nodeId, generation, spki: csr.spki, now });
  if (known !== undefined) {
    await releaseSerial(tx, reservation);
    return known;
  }
  const certificate = await signReserved(nodeCa, reservation, now);
  await storeCertificate(tx, { reservation, certificate, now });
  return certificate;
}

export interface EndLeaseOptions {
  readonly db: Database;
  readonly nodeId: string;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

/**
 * Takes a let machine back (REV-004): the tenant's certificates are revoked, and the node is the platform's again, without an identity
 * until its next run.
 *
 * @throws NOT_FOUND; INVALID_STATE for a machine that is not let
 */
export const endTenantLease = ({ db, nodeId, actor, reason, now }: EndLeaseOptions): Promise<Revoked> =>
  db.transaction(async (tx) => {
    const node = await lockNode(tx, nodeId);
    if (node !== undefined && node.role !== 'node-tenant')
      throw new ControlError('INVALID_STATE', `node ${nodeId} is not let to a tenant`, { details: { reason: 'not-let', nodeId } });
    return endIdentity(tx, { nodeId, why: 'reclaim', actor, reason, now });
  });
