/**
 * Renewal (RENEW-002 to RENEW-012): a node proves possession of its current key over a new CSR. The checks run in one fixed
 * order, and nothing is written before the last of them: a clock that is wrong never burns a replay entry (C45).
 */
import { ControlError } from '../domain/errors.ts';
import { minute, second } from '../domain/time.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { lockNode, type NodeFacts, readNodeFacts } from '../drizzle/queries/nodes.ts';
import { type RenewStatement, renewStatement, renewStatementId, verifyRenewProof } from '../pki/enroll/index.ts';
import { verifyKeyAttestation } from '../pki/tpm/index.ts';
import {
  type Certificate,
  type CertificateRequest,
  isNodeKeyStatement,
  type NodeIdentity,
  nodeIdentityOf,
  parseCsr,
  parseTpmAkUri,
  verifyChain,
} from '../pki/x509/index.ts';
import { bounds, encodeMessage, KeyAttestationSchema, type RenewRequest, RenewRequestSchema, RenewResponseSchema } from '../proto/index.ts';
import type { GatewayPeer } from './gateway-port.ts';
import type { ServiceLog } from './log.ts';
import {
  findCertificateRow,
  issuerOf,
  type NodeAuthority,
  type Reservation,
  reserveSerial,
  type StoredCertificate,
  signReserved,
  storeCertificate,
} from './node-certs.ts';
import { decodeRequest } from './wire.ts';

export interface RenewServiceOptions {
  readonly db: Database;
  readonly trustDomain: string;
  readonly nodeCa: NodeAuthority;
  /** DER of every certificate of the node CA's key: chains made before a renewal of the CA count (C14). */
  readonly anchors: readonly Uint8Array[];
  readonly log: ServiceLog;
  readonly now: number;
}

export const renewWindowMs = minute;
/** Twice the window, ends included: a statement from the future edge of the window is remembered until it is outside of it. */
export const replayKeptMs = 120 * second;

/**
 * @param bytes an encoded RenewRequest
 * @param peer what the gateway saw in the handshake; the request must renew that certificate
 * @returns an encoded RenewResponse
 * @throws in this order: FRAME_TOO_LARGE or MALFORMED; BAD_SIGNATURE, CERTIFICATE_EXPIRED or PERMISSION_DENIED (chain); REVOKED;
 *   PERMISSION_DENIED (identity, row); INVALID_STATE (generation); PERMISSION_DENIED, MALFORMED or BAD_SIGNATURE
 *   (attestation of the new key); BAD_SIGNATURE (proof);
 *   CLOCK_SKEW with the server's time; REPLAYED; CA_EXPIRED
 */
export async function renewCertificate(bytes: Uint8Array, peer: GatewayPeer, options: RenewServiceOptions): Promise<Uint8Array> {
  const request = decodeRequest(RenewRequestSchema, bytes, 'renewRequest'); // 1. sizes
  assertShape(request, peer);
  const csr = parseCsr(request.csr);
  const leaf = verifyLeaf(request, options); //                                2. chain
  const row = await findRow(leaf, options); //                                 3. revocation
  const identity = nodeIdentityOf(leaf, options.trustDomain); //               4. SPIFFE id
  assertRow(leaf, identity, row); //                                           5. byte-equal row
  const node = (await readNodeFacts(options.db, [identity.nodeId])).get(identity.nodeId);
  assertGeneration(node, row); //                                              6. generation
  const statement = { csr: request.csr, nodeId: identity.nodeId, timeMs: request.timeMs };
  assertKeyAttestation(request, { leaf, identity, spki: csr.spki, statement }); // 7. attested keys
  verifyRenewProof(request.proof, statement, leaf.spki); //                    8. possession
  assertTime(request, options.now); //                                         9. ± 60 s
  const reservation = await admit({ leaf, identity, statement, csr, row: row as StoredCertificate }, options); // 10. replay
  const certificate = await issue(reservation, options); //                   11. issue
  options.log.info({ nodeId: identity.nodeId, serial: certificate.serial }, `node ${identity.nodeId} renewed its certificate`);
  return encodeMessage(
    RenewResponseSchema,
    { chain: [certificate.der, options.nodeCa.certificate], serverTimeMs: BigInt(Math.floor(options.now)) },
    'renewResponse',
  );
}

const denied = (reason: string, message: string): never => {
  throw new ControlError('PERMISSION_DENIED', message, { details: { reason } });
};

function assertShape({ chain }: RenewRequest, peer: GatewayPeer): void {
  const [leaf] = chain;
  if (leaf === undefined || chain.length > bounds.certificateChainLength || chain.some((der) => der.length > bounds.certificate)) {
    throw new ControlError('MALFORMED', `the renewal carries ${chain.length} certificates, or one that is too large`, {
      details: { reason: 'renew-chain' },
    });
  }
  const [proven] = peer.chain;
  if (proven === undefined || !Buffer.from(proven).equals(leaf))
    denied('peer-differs', 'the renewal is for another certificate than the connection shows');
}

const verifyLeaf = ({ chain }: RenewRequest, { anchors, now }: RenewServiceOptions): Certificate =>
  verifyChain(chain, { anchors, now, purpose: 'client' }).leaf;

async function findRow(leaf: Certificate, { db, nodeCa }: RenewServiceOptions): Promise<StoredCertificate | undefined> {
  const row = await findCertificateRow(db, issuerOf(nodeCa.spki), leaf.serial);
  if (row?.revokedAt != null)
    throw new ControlError('REVOKED', `certificate ${leaf.serial} was revoked`, { details: { reason: 'certificate-revoked' } });
  return row;
}

/** A certificate that chains but is not the one we stored was signed by a stolen or misused CA (RENEW-009). */
function assertRow(leaf: Certificate, identity: NodeIdentity, row: StoredCertificate | undefined): void {
  if (row?.der == null) return denied('unknown-certificate', `certificate ${leaf.serial} was not issued here`);
  if (row.nodeId !== identity.nodeId || !Buffer.from(row.der).equals(leaf.der)) {
    denied('certificate-differs', `certificate ${leaf.serial} is not the one that was issued`);
  }
}

function assertGeneration(node: NodeFacts | undefined, row: StoredCertificate | undefined): void {
  if (node === undefined) return denied('unknown-node', 'the node is not known here');
  if (node.state === 'revoked') throw new ControlError('REVOKED', `node ${node.id} was revoked`, { details: { reason: 'node-revoked' } });
  if (node.state !== 'active') denied('node-not-active', `node ${node.id} is ${node.state}`);
  if (row?.generation === node.identityGeneration) return;
  throw new ControlError(
    'INVALID_STATE',
    `the certificate is of identity generation ${row?.generation}, node ${node.id} is at ${node.identityGeneration}`,
    {
      details: { reason: 'generation-superseded' },
    },
  );
}

interface Attested {
  readonly leaf: Certificate;
  readonly identity: NodeIdentity;
  /** Of the new key. */
  readonly spki: Uint8Array;
  readonly statement: RenewStatement;
}

/** RENEW-008: what the certificate states decides, never the request; ID-034: a tenant's machine attests nothing. */
function assertKeyAttestation({ keyAttestation }: RenewRequest, { leaf, identity, spki, statement }: Attested): void {
  const akName = leaf.uriSans.map(parseTpmAkUri).find((name) => name !== null);
  if (identity.role === 'node-tenant' && (akName !== undefined || keyAttestation.length > 0))
    denied('tenant-attests', `node ${identity.nodeId} is a tenant's: it attests nothing`);
  if (akName === undefined) return;
  if (keyAttestation.length === 0)
    denied('key-attestation', "the certificate's key is attested by a TPM: its renewal needs that TPM's attestation of the new key");
  const attestation = decodeRequest(KeyAttestationSchema, keyAttestation, 'renewRequest');
  verifyKeyAttestation(attestation, { spki, request: renewStatement(statement) }, akName);
}

function assertTime({ timeMs }: RenewRequest, now: number): void {
  const skewMs = Number(timeMs) - now;
  if (Math.abs(skewMs) <= renewWindowMs) return;
  throw new ControlError('CLOCK_SKEW', `the clock of the node is ${Math.round(skewMs / second)} s off`, {
    details: { reason: 'clock-skew', serverTimeMs: Math.floor(now) },
  });
}

interface Admitted {
  readonly leaf: Certificate;
  readonly identity: NodeIdentity;
  readonly statement: RenewStatement;
  readonly csr: CertificateRequest;
  readonly row: StoredCertificate;
}

const remember = {
  name: 'renew-replay',
  text: `insert into renew_replays as r (statement_sha256, expires_at) values ($1, $2)
         on conflict (statement_sha256) do update set expires_at = excluded.expires_at where r.expires_at < $3 returning 1`,
};
const forget = {
  name: 'renew-forget',
  text: `delete from renew_replays where statement_sha256 in (select statement_sha256 from renew_replays where expires_at < $1 limit 20 for update skip locked)`,
};

/** One transaction: the statement is new, the node is what it was, the serial is reserved. Shared by every replica (A-PKI-48). */
function admit({ leaf, identity, statement, csr, row }: Admitted, options: RenewServiceOptions): Promise<Reservation> {
  const { db, now, nodeCa } = options;
  const { trustDomain, siteId, nodeId, role } = identity;
  return db.transaction(async (tx: Executor) => {
    assertGeneration(await lockNode(tx, nodeId), row);
    const id = Buffer.from(renewStatementId(statement), 'hex');
    if ((await tx.query(remember, [id, instant(now + replayKeptMs), instant(now)])).length === 0) {
      throw new ControlError('REPLAYED', 'this renewal was used before', { details: { reason: 'replayed' } });
    }
    await tx.query(forget, [instant(now)]);
    const statements = leaf.uriSans.filter(isNodeKeyStatement);
    return reserveSerial(tx, nodeCa, {
      identity: { trustDomain, siteId, nodeId },
      role,
      generation: row.generation,
      spki: csr.spki,
      statements,
      now,
    });
  });
}

async function issue(reservation: Reservation, { db, nodeCa, now }: RenewServiceOptions): Promise<Certificate> {
  const certificate = await signReserved(nodeCa, reservation, now);
  await storeCertificate(db, { reservation, certificate, now });
  return certificate;
}
