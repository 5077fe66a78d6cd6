/**
 * Join by token (JOIN-001 to JOIN-029): a machine without an identity presents a token and a CSR and gets a certificate.
 *
 * A token is used by one conditional UPDATE, so of any number of parallel joins one wins (C25). The answer may get lost on the
 * way: the same token with the same CSR is the same machine asking again, and gets the same node and the same certificate.
 * Two transactions stand around the signature: the first claims the token, makes the node and reserves the serial; the second,
 * under the token's row lock, finds the certificate or makes it. A crash between them is repaired by the machine's next try.
 */
import { createHash, randomBytes } from 'node:crypto';
import { fromBinary } from '@bufbuild/protobuf';
import { ControlError, isControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { changeIdentity, insertNodeRow, lockNode, type NodeFacts } from '../drizzle/queries/nodes.ts';
import { publishedTrust } from '../drizzle/queries/trust.ts';
import type { DecryptionKey } from '../pki/bundle/types.ts';
import { type JoinTokenClaims, openJoinToken, signJoinResponse } from '../pki/enroll/index.ts';
import { type Certificate, type CertificateRequest, parseCsr, type Signer } from '../pki/x509/index.ts';
import { type HardwareClaims, type JoinRequest, JoinRequestSchema, type TrustBundle, TrustBundleSchema } from '../proto/index.ts';
import { appendAudit } from './audit.ts';
import { cancelCommandsOf } from './command-ends.ts';
import type { ServiceLog } from './log.ts';
import {
  findValidCertificate,
  type NodeAuthority,
  type Reservation,
  releaseSerial,
  reserveSerial,
  signReserved,
  storeCertificate,
} from './node-certs.ts';
import { revokeCertificates } from './revocation.ts';
import { assertTenant } from './tenants.ts';
import { secretSha256, type TokenRole } from './tokens.ts';
import { decodeRequest } from './wire.ts';

export interface JoinServiceOptions {
  readonly db: Database;
  readonly trustDomain: string;
  readonly nodeCa: NodeAuthority;
  readonly joinSigner: Signer;
  readonly joinEncryption: Pick<DecryptionKey, 'privateKey'>;
  readonly log: ServiceLog;
  readonly now: number;
  readonly random?: (bytes: number) => Uint8Array;
}

/** Every attestor there will be (JOIN-011); this version judges the first. */
export const attestors = Object.freeze(['join-token', 'x509pop', 'provisioned', 'discovery', 'cloud-iid', 'tpm'] as const);

/**
 * @param bytes an encoded JoinRequest
 * @returns an encoded JoinResponse, signed by the JoinService key
 * @throws MALFORMED, FRAME_TOO_LARGE, UNSUPPORTED for a request that is none; UNAUTHENTICATED or PERMISSION_DENIED, with a reason,
 *   for a token that does not count; CA_EXPIRED; UNAVAILABLE before the first trust bundle is published
 */
export async function joinNode(bytes: Uint8Array, options: JoinServiceOptions): Promise<Uint8Array> {
  const request = decodeRequest(JoinRequestSchema, bytes, 'joinRequest'); // 1. size, then form
  assertShape(request); //                                                   2. what this version judges
  const csr = parseCsr(request.csr); //                                      3. the key is the sender's
  const claims = openToken(request, options); //                             4. a token of this deployment
  const trust = await readTrust(options.db); //                              5. something to believe in
  const claim = await claimToken({ request, csr, claims }, options); //      6. the token, once
  const certificate = await issueOnce(claim, csr, options); //               7. one certificate
  options.log.info({ nodeId: claim.nodeId, serial: certificate.serial, repeated: claim.repeated }, `node ${claim.nodeId} joined`);
  return answer({ request, claim, certificate, trust }, options);
}

function assertShape({ attestor, role, nonce }: JoinRequest): void {
  if (attestor !== 'join-token') {
    const known = (attestors as readonly string[]).includes(attestor);
    throw new ControlError('UNSUPPORTED', known ? `attestor ${attestor} is not offered here` : 'the request names no attestor we know', {
      details: { reason: known ? 'attestor-unsupported' : 'attestor-unknown' },
    });
  }
  if (role !== 'node' && role !== 'site') {
    throw new ControlError('INVALID_INPUT', 'a join token admits role node or site', { details: { reason: 'wrong-role' } });
  }
  if (nonce.length !== 32)
    throw new ControlError('MALFORMED', `the nonce has ${nonce.length} bytes, not 32`, { details: { reason: 'nonce' } });
}

function openToken({ evidence, role }: JoinRequest, { joinEncryption, trustDomain }: JoinServiceOptions): JoinTokenClaims {
  const claims = openJoinToken(joinEncryption.privateKey, Buffer.from(evidence).toString('utf8'), { trustDomain });
  if (claims.role === role) return claims;
  throw denied('wrong-role', `the join token is for role ${claims.role}, the request for ${role}`);
}

const denied = (reason: string, message: string): ControlError => new ControlError('PERMISSION_DENIED', message, { details: { reason } });

async function readTrust(db: Executor): Promise<TrustBundle> {
  const published = await publishedTrust(db);
  if (published !== null) return fromBinary(TrustBundleSchema, published.body);
  throw new ControlError('UNAVAILABLE', 'no trust bundle is published yet', { details: { reason: 'nothing-published' } });
}

interface Asked {
  readonly request: JoinRequest;
  readonly csr: CertificateRequest;
  readonly claims: JoinTokenClaims;
}

interface Claim {
  readonly tokenId: string;
  readonly nodeId: string;
  readonly siteId: string;
  readonly generation: number;
  readonly reservation: Reservation;
  /** The token was used by this machine before. */
  readonly repeated: boolean;
}

interface TokenState {
  readonly nodeId: string | null;
  readonly siteId: string;
  readonly role: TokenRole;
  readonly createdBy: string;
  readonly expiresAt: number;
  readonly usedByNode: string | null;
  readonly usedCsr: Uint8Array | null;
  readonly tenantId: string;
}

const tokenColumns = `node_id as "nodeId", site_id as "siteId", role, tenant_id as "tenantId", created_by as "createdBy", expires_at as "expiresAt",
  used_by_node as "usedByNode", used_csr_sha256 as "usedCsr"`;
const use = {
  name: 'join-token-use',
  text: `update join_tokens set used_at = $3, used_by_node = coalesce(node_id, $4), used_csr_sha256 = $5
         where id = $1 and secret_sha256 = $2 and used_at is null and expires_at > $3 returning ${tokenColumns}`,
};
const look = { name: 'join-token-look', text: `select ${tokenColumns} from join_tokens where id = $1 and secret_sha256 = $2` };

function claimToken({ request, csr, claims }: Asked, options: JoinServiceOptions): Promise<Claim> {
  const { db, now, random = randomBytes } = options;
  const newId = `${request.role}-${Buffer.from(random(6)).toString('hex')}`;
  const key = [claims.tokenId, secretSha256(claims.secret)];
  return db.transaction(async (tx) => {
    const [used] = await tx.query<TokenState>(use, [...key, instant(now), newId, csrSha256(csr)]);
    const stillOpen = async (): Promise<TokenState> => assertRepeated((await tx.query<TokenState>(look, key))[0], csr, now);
    const token = used ?? (await stillOpen());
    const nodeId = token.usedByNode ?? newId;
    const node =
      used === undefined ? await repeatedNode(tx, nodeId, stillOpen) : await admit(tx, { nodeId, token, request, claims }, options);
    const generation = node.identityGeneration;
    const identity = { trustDomain: options.trustDomain, siteId: node.siteId, nodeId };
    const reservation = await reserveSerial(tx, options.nodeCa, {
      identity,
      role: node.role,
      generation,
      spki: csr.spki,
      statements: [],
      now,
    });
    return { tokenId: claims.tokenId, nodeId, siteId: node.siteId, generation, reservation, repeated: used === undefined };
  });
}

const csrSha256 = ({ der }: CertificateRequest): Buffer => createHash('sha256').update(der).digest();

function assertRepeated(token: TokenState | undefined, csr: CertificateRequest, now: number): TokenState {
  if (token === undefined) throw denied('token-unknown', 'the join token is not known here');
  if (token.usedByNode === null) {
    throw denied(token.expiresAt <= now ? 'token-expired' : 'token-unknown', 'the join token has expired');
  }
  if (token.usedCsr !== null && csrSha256(csr).equals(token.usedCsr)) return token;
  throw denied('token-used', `the join token was used by node ${token.usedByNode}`);
}

/** Asked once more under the node's lock: it may have joined again while this waited for it. */
async function repeatedNode(tx: Executor, nodeId: string, stillOpen: () => Promise<TokenState>): Promise<NodeFacts> {
  const node = await lockNode(tx, nodeId);
  await stillOpen();
  if (node?.state === 'active') return node;
  throw denied('token-used', `the join token was used by node ${nodeId}, which is ${node?.state ?? 'gone'}`);
}

interface Admission {
  readonly nodeId: string;
  readonly token: TokenState;
  readonly request: JoinRequest;
  readonly claims: JoinTokenClaims;
}

/** The earlier identity's join is over: its request, repeated by whoever has its key, gets no certificate of the new one. */
const closeEarlier = {
  name: 'join-tokens-close',
  text: 'update join_tokens set used_csr_sha256 = null where used_by_node = $1 and id <> $2 and used_csr_sha256 is not null',
};

/** A new node; or one that is known and gets a new identity, because an operator made a token for it by name. */
async function admit(tx: Executor, { nodeId, token, request, claims }: Admission, { now }: JoinServiceOptions): Promise<NodeFacts> {
  const { siteId, role, tenantId } = token;
  await assertTenant(tx, tenantId).catch((cause: unknown) => {
    throw isControlError(cause) ? denied('tenant-deleted', `the join token is for tenant ${tenantId}, which was deleted`) : cause;
  });
  const hardware = hardwareJson(request.hardware);
  const created = await insertNodeRow(tx, {
    id: nodeId,
    siteId,
    role,
    tenantId,
    hostname: request.hardware?.hostname ?? '',
    hardware,
    now,
  });
  const node = await lockNode(tx, nodeId);
  if (node === undefined) throw new ControlError('INTERNAL', `node ${nodeId} is gone`);
  const identityGeneration = created
    ? node.identityGeneration
    : await renewIdentity(tx, node, { siteId, role, tenantId, tokenId: claims.tokenId, now });
  const details = { token: claims.tokenId, generation: identityGeneration, site: siteId, role, tenant: tenantId };
  const key = `node/${nodeId}/join/${identityGeneration}`;
  await appendAudit(tx, { key, actor: token.createdBy, action: created ? 'node.join' : 'node.rejoin', subject: nodeId, details }, now);
  return { ...node, state: 'active', identityGeneration };
}

interface Expected {
  readonly siteId: string;
  readonly role: TokenRole;
  readonly tenantId: string;
  readonly tokenId: string;
  readonly now: number;
}

const tenantOf = { name: 'join-tenant', text: 'select tenant_id as "tenantId" from nodes where id = $1' };

async function renewIdentity(tx: Executor, node: NodeFacts, { siteId, role, tenantId, tokenId, now }: Expected): Promise<number> {
  const [owner] = await tx.query<{ tenantId: string }>(tenantOf, [node.id]);
  // A batch of the one tenant must never reach a machine that answers for the other.
  if (owner?.tenantId !== tenantId) throw denied('node-differs', `node ${node.id} is of another tenant than the join token`);
  if (node.siteId !== siteId || node.role !== role) {
    throw denied('node-differs', `node ${node.id} is a ${node.role} of site ${node.siteId}, the join token names a ${role} of ${siteId}`);
  }
  if (node.state === 'retired' || node.state === 'quarantined') throw denied('node-not-active', `node ${node.id} is ${node.state}`);
  const generation = await changeIdentity(tx, { node, state: 'active', now });
  if (generation === undefined)
    throw new ControlError('CONFLICT', `node ${node.id} changed meanwhile`, { details: { reason: 'node-changed' } });
  // Before the certificates, as issueOnce takes its locks.
  await tx.query(closeEarlier, [node.id, tokenId]);
  await cancelCommandsOf(tx, { nodeId: node.id, reason: 'node joined again', now });
  await revokeCertificates(tx, { nodeId: node.id, reason: 'joined again', now });
  return generation;
}

function hardwareJson(hardware: HardwareClaims | undefined): Record<string, unknown> {
  if (hardware === undefined) return {};
  const { machineId, systemUuid, systemSerial, macAddresses, architecture, kernel, cpus, memoryBytes } = hardware;
  return { machineId, systemUuid, systemSerial, macAddresses, architecture, kernel, cpus, memoryBytes: String(memoryBytes) };
}

const lockToken = { name: 'join-token-lock', text: 'select id from join_tokens where id = $1 for update' };

/** Under the token's lock: whoever asks second finds what the first made. */
function issueOnce(claim: Claim, csr: CertificateRequest, options: JoinServiceOptions): Promise<Certificate> {
  const { db, nodeCa, now } = options;
  const { nodeId, generation, reservation, tokenId } = claim;
  return db.transaction(async (tx) => {
    await tx.query(lockToken, [tokenId]);
    const known = await findValidCertificate(tx, { nodeId, generation, spki: csr.spki, now });
    if (known !== undefined) {
      await releaseSerial(tx, reservation);
      return known;
    }
    const certificate = await signReserved(nodeCa, reservation, now);
    await storeCertificate(tx, { reservation, certificate, now });
    return certificate;
  });
}

interface Granted {
  readonly request: JoinRequest;
  readonly claim: Claim;
  readonly certificate: Certificate;
  readonly trust: TrustBundle;
}

function answer({ request, claim, certificate, trust }: Granted, { joinSigner, nodeCa, now }: JoinServiceOptions): Promise<Uint8Array> {
  const { nodeId, siteId, generation } = claim;
  return signJoinResponse(joinSigner, {
    nonce: request.nonce,
    csrSha256: createHash('sha256').update(request.csr).digest(),
    serverTimeMs: BigInt(Math.floor(now)),
    outcome: {
      case: 'granted',
      value: { nodeId, siteId, chain: [certificate.der, nodeCa.certificate], trust, generation: BigInt(generation) },
    },
  });
}
