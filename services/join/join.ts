/**
 * JoinService (JOIN-001 to JOIN-029): a machine without an identity presents evidence and a CSR and gets a certificate. Who vouches for
 * it is an attestor; this file is what all of them have in common.
 *
 * Two transactions stand around the signature: the first uses the evidence, makes or changes the node and reserves the serial; the second,
 * under the evidence's lock, finds the certificate or makes it. A crash between them is repaired by the machine's next try.
 *
 * Threat model: the request is anybody's, through any gateway, as often as he likes. Nothing is used up and nobody is told anything of a
 * node before the evidence holds; a policy that defers (JOIN-013) is asked before the evidence is used.
 */
import { createHash } from 'node:crypto';
import { fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { signJoinResponse } from '../../pki/enroll/index.ts';
import { type Certificate, type CertificateRequest, parseCsr } from '../../pki/x509/index.ts';
import {
  type JoinRequest,
  JoinRequestSchema,
  type JoinResponseBodySchema,
  type TrustBundle,
  TrustBundleSchema,
} from '../../proto/index.ts';
import { findValidCertificate, type Reservation, releaseSerial, reserveSerial, signReserved, storeCertificate } from '../node-certs.ts';
import { decodeRequest } from '../wire.ts';
import { discovery } from './discovery.ts';
import { enrolment } from './enrolment.ts';
import { csrSha256 } from './identity.ts';
import { joinToken, provisioned } from './token.ts';
import { tpm } from './tpm.ts';
import type { Asked, Attestor, AttestorName, Claim, JoinServiceOptions, JoinVerdict, Judged } from './types.ts';
import { x509pop } from './x509pop.ts';

/** Attestors by name; null: of a release to come. */
const table: Readonly<Record<AttestorName, Attestor | null>> = Object.freeze({
  'join-token': joinToken,
  x509pop,
  provisioned,
  discovery,
  'cloud-iid': null,
  tpm,
  enrolment,
});

/** Every attestor there will be (JOIN-011). */
export const attestors = Object.freeze(Object.keys(table)) as readonly AttestorName[];
/** Those that this release judges. */
export const offeredAttestors = Object.freeze(attestors.filter((name) => table[name] !== null));

/**
 * @param bytes an encoded JoinRequest
 * @returns an encoded JoinResponse, signed by the JoinService key
 * @throws MALFORMED, FRAME_TOO_LARGE, UNSUPPORTED for a request that is none; UNAUTHENTICATED, BAD_SIGNATURE, CERTIFICATE_EXPIRED or
 *   PERMISSION_DENIED, with a reason, for evidence that does not count; CA_EXPIRED; UNAVAILABLE before the first trust bundle is published
 */
export async function joinNode(bytes: Uint8Array, options: JoinServiceOptions): Promise<Uint8Array> {
  const request = decodeRequest(JoinRequestSchema, bytes, 'joinRequest'); //     1. size, then form
  const attestor = assertShape(request); //                                      2. what this version judges
  const asked = { request, csr: parseCsr(request.csr) }; //                      3. the key is the sender's
  const judged = await attestor.judge(asked, options); //                        4. evidence of this deployment
  if ('challenge' in judged) return defer(request, { kind: 'deferred', retryAfterSeconds: 0, ...judged }, options);
  const trust = await readTrust(options.db); //                                  5. something to believe in
  const verdict = await admission(asked, judged, options); //                    6. now, by this deployment's policy
  if (verdict.kind === 'deferred') return defer(request, verdict, options);
  const claim = await claimOnce(asked, judged, options); //                      7. the evidence, once
  const certificate = await issueOnce(claim, { judged, csr: asked.csr }, options); // 8. one certificate
  const { id } = claim.node;
  options.log.info(
    { nodeId: id, attestor: request.attestor, serial: certificate.serial, repeated: claim.repeated },
    `node ${id} joined as ${claim.node.role}`,
  );
  return grant({ request, claim, certificate, trust }, options);
}

function assertShape({ attestor: name, role, nonce }: JoinRequest): Attestor {
  const attestor = Object.hasOwn(table, name) ? table[name as AttestorName] : undefined;
  if (attestor === undefined || attestor === null) {
    const known = attestor === null;
    throw new ControlError('UNSUPPORTED', known ? `attestor ${name} is not offered here` : 'the request names no attestor we know', {
      details: { reason: known ? 'attestor-unsupported' : 'attestor-unknown' },
    });
  }
  if (!(attestor.roles as readonly string[]).includes(role)) {
    throw new ControlError('INVALID_INPUT', `attestor ${name} admits role ${attestor.roles.join(' or ')}`, {
      details: { reason: 'wrong-role' },
    });
  }
  if (nonce.length !== 32)
    throw new ControlError('MALFORMED', `the nonce has ${nonce.length} bytes, not 32`, { details: { reason: 'nonce' } });
  return attestor;
}

async function readTrust(db: Executor): Promise<TrustBundle> {
  const published = await publishedTrust(db);
  if (published !== null) return fromBinary(TrustBundleSchema, published.body);
  throw new ControlError('UNAVAILABLE', 'no trust bundle is published yet', { details: { reason: 'nothing-published' } });
}

async function admission({ request, csr }: Asked, { facts }: Judged, { policy, now }: JoinServiceOptions): Promise<JoinVerdict> {
  if (policy === undefined) return { kind: 'admitted' };
  const { attestor, role, hardware } = request;
  const shown = { csrSha256: csrSha256(csr).toString('hex'), hardware };
  return policy({ ...facts, ...shown, attestor: attestor as AttestorName, role: role as Claim['node']['role'], now });
}

interface Claimed extends Claim {
  readonly reservation: Reservation;
}

async function claimOnce({ csr }: Asked, judged: Judged, options: JoinServiceOptions): Promise<Claimed> {
  const { db, nodeCa, trustDomain, now } = options;
  try {
    return await db.transaction(async (tx) => {
      const claim = await judged.claim(tx);
      const { id, siteId, role, generation } = claim.node;
      const identity = { trustDomain, siteId, nodeId: id };
      const order = { identity, role, generation, spki: csr.spki, statements: claim.statements, now };
      return { ...claim, reservation: await reserveSerial(tx, nodeCa, order) };
    });
  } catch (error) {
    const { onRefused } = judged;
    if (onRefused !== undefined) await db.transaction((tx) => onRefused(tx, error));
    throw error;
  }
}

interface Issuing {
  readonly judged: Judged;
  readonly csr: CertificateRequest;
}

/** Under the evidence's lock: whoever asks second finds what the first made. */
function issueOnce({ node, reservation }: Claimed, { judged, csr }: Issuing, options: JoinServiceOptions): Promise<Certificate> {
  const { db, nodeCa, now } = options;
  return db.transaction(async (tx) => {
    await judged.lock(tx);
    const known = await findValidCertificate(tx, { nodeId: node.id, generation: node.generation, spki: csr.spki, now });
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

function grant({ request, claim, certificate, trust }: Granted, options: JoinServiceOptions): Promise<Uint8Array> {
  const { id: nodeId, siteId, generation } = claim.node;
  const chain = [certificate.der, options.nodeCa.certificate];
  return sign(request, { case: 'granted', value: { nodeId, siteId, chain, trust, generation: BigInt(generation) } }, options);
}

/** JOIN-013: no certificate, and nothing used up. */
function defer(
  request: JoinRequest,
  { retryAfterSeconds, challenge = new Uint8Array() }: Extract<JoinVerdict, { kind: 'deferred' }>,
  options: JoinServiceOptions,
): Promise<Uint8Array> {
  options.log.info({ attestor: request.attestor, retryAfterSeconds }, 'join deferred');
  return sign(request, { case: 'deferral', value: { retryAfterSeconds, challenge } }, options);
}

type Outcome = NonNullable<MessageInitShape<typeof JoinResponseBodySchema>['outcome']>;

function sign(request: JoinRequest, outcome: Outcome, { joinSigner, now }: JoinServiceOptions): Promise<Uint8Array> {
  const csrDigest = createHash('sha256').update(request.csr).digest();
  return signJoinResponse(joinSigner, { nonce: request.nonce, csrSha256: csrDigest, serverTimeMs: BigInt(Math.floor(now)), outcome });
}
