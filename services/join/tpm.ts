/**
 * Joining by a TPM (JOIN-011, JOIN-026): a machine whose endorsement key the operator listed shows that it holds that TPM now, and gets the
 * identity that stands beside the key. The certificate states which attestation key spoke for the node's key (ID-013).
 *
 * In two requests: the first shows the keys and is answered by a challenge that only this TPM can open, and only while it holds that
 * attestation key; the second brings the secret, and the attestation key's signature over the node's key and the secret.
 *
 * Threat model: public keys and certificates of TPMs are no secret, so the first request is anybody's, and gives nothing away. Another TPM
 * cannot open the challenge; another attestation key has another name; an answer counts for the request that was challenged, for two minutes,
 * for one identity. An identity that ended by somebody's word stays ended: a TPM is never a way back from a revocation. A tenant's machine
 * vouches for nothing (ID-034), also not for itself: the tenant holds its TPM.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { lockNode, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import {
  assertAttestationKey,
  assertEndorsementKey,
  credentialSecretBytes,
  makeCredential,
  parseTpmPublic,
  spkiDigest,
  type TpmPublic,
  verifyEndorsementChain,
  verifyKeyAttestation,
} from '../../pki/tpm/index.ts';
import { tpmAkUri } from '../../pki/x509/index.ts';
import {
  decodeMessage,
  encodeMessage,
  type TpmAnswer,
  TpmChallengeSchema,
  type TpmEvidence,
  TpmEvidenceSchema,
} from '../../proto/index.ts';
import { findValidCertificate } from '../node-certs.ts';
import { admitNode } from './admit.ts';
import { csrSha256, denied } from './identity.ts';
import type { Asked, Attestor, Challenged, Claim, JoinServiceOptions, TpmEnrolment, TpmTrust } from './types.ts';

/** For a TPM that is slow, and for the way there and back. */
export const challengeLivesMs = 2 * minute;

export const tpm: Attestor = {
  roles: ['node', 'site'],
  async judge(asked, options) {
    const trust = offered(options);
    const evidence = readTpmEvidence(asked.request.evidence); //        1. two keys, in good form
    const shown = shownKeys(evidence);
    const enrolment = await assertListed(shown, trust); //              2. a TPM of this fleet
    assertGenuine(shown, { evidence, trust, options }); //              3. where its operator asks for it, a genuine one
    assertRole(enrolment, asked);
    const tpmAsked = { ...asked, ...shown, enrolment };
    if (evidence.answer === undefined) return challenge(tpmAsked, options);
    await assertAnswered(evidence.answer, tpmAsked, options); //        4. that holds both keys, now
    assertAttested(evidence.answer, tpmAsked); //                       5. and speaks for the node's key
    const proven = { ...tpmAsked, challengeId: evidence.answer.challengeId };
    const nodeId = nodeIdOf(enrolment);
    return {
      facts: { nodeId, siteId: enrolment.siteId },
      claim: (tx) => claimNode(tx, proven, options),
      lock: async (tx) => void (await lockNode(tx, nodeId)),
    };
  },
};

function offered({ tpm: trust }: JoinServiceOptions): TpmTrust {
  if (trust !== undefined) return trust;
  throw new ControlError('UNSUPPORTED', 'attestor tpm is not offered here: this deployment lists no TPMs', {
    details: { reason: 'attestor-unsupported' },
  });
}

/** @throws MALFORMED for bytes that are none */
export function readTpmEvidence(evidence: Uint8Array): TpmEvidence {
  try {
    return decodeMessage(TpmEvidenceSchema, evidence, 'renewRequest');
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the evidence is not a TpmEvidence', { cause, details: { reason: 'evidence' } });
  }
}

interface Shown {
  readonly ek: TpmPublic;
  readonly ak: TpmPublic;
}

/** @throws MALFORMED for keys in another form; PERMISSION_DENIED for such as do not do what their place asks for */
export function shownKeys({ ekPublic, akPublic }: TpmEvidence): Shown {
  const [ek, ak] = [parseTpmPublic(ekPublic, 'ekPublic'), parseTpmPublic(akPublic, 'akPublic')];
  assertEndorsementKey(ek);
  assertAttestationKey(ak);
  return { ek, ak };
}

async function assertListed({ ek }: Shown, trust: TpmTrust): Promise<TpmEnrolment> {
  const digest = spkiDigest(ek);
  const enrolment = await trust.find(digest);
  if (enrolment !== undefined) return enrolment;
  throw denied('tpm-unknown', `the inventory of TPMs lists no endorsement key ${digest}`);
}

interface Genuine {
  readonly evidence: TpmEvidence;
  readonly trust: TpmTrust;
  readonly options: JoinServiceOptions;
}

function assertGenuine({ ek }: Shown, { evidence, trust: { roots }, options: { now } }: Genuine): void {
  if (roots !== null) verifyEndorsementChain(evidence.ekCertificates, { roots, spki: ek.spki, now });
}

function assertRole({ role, ekSha256 }: TpmEnrolment, { request }: Asked): void {
  if (request.role === role) return;
  throw denied('wrong-role', `the inventory lists endorsement key ${ekSha256} for role ${role}, the request is for ${request.role}`);
}

interface TpmAsked extends Asked, Shown {
  readonly enrolment: TpmEnrolment;
}

const nodeIdOf = ({ nodeId, role, ekSha256 }: TpmEnrolment): string => nodeId ?? `${role}-${ekSha256.slice(0, 20)}`;

const keep = {
  name: 'tpm-challenge-insert',
  text: `insert into tpm_challenges (id, ek_sha256, ak_name, csr_sha256, secret_sha256, created_at, expires_at) values ($1, $2, $3, $4, $5, $6, $7)`,
};
const forget = {
  name: 'tpm-challenge-forget',
  text: `delete from tpm_challenges where id in (select id from tpm_challenges where expires_at < $1 limit 20 for update skip locked)`,
};

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

async function challenge({ ek, ak, csr, enrolment }: TpmAsked, { db, now, random = randomBytes }: JoinServiceOptions): Promise<Challenged> {
  const id = randomUUID();
  const secret = random(credentialSecretBytes);
  const { blob, encryptedSecret } = makeCredential(ek, ak.name, secret);
  const digests = [Buffer.from(enrolment.ekSha256, 'hex'), ak.name, csrSha256(csr), sha256(secret)];
  await db.query(keep, [id, ...digests, instant(now), instant(now + challengeLivesMs)]);
  await db.query(forget, [instant(now)]);
  return { challenge: encodeMessage(TpmChallengeSchema, { id, credential: blob, encryptedSecret }, 'joinResponse') };
}

interface Kept {
  readonly ekSha256: Buffer;
  readonly akName: Buffer;
  readonly csrSha256: Buffer;
  readonly secretSha256: Buffer;
  readonly expiresAt: number;
  readonly usedGeneration: number | null;
}

const look = {
  name: 'tpm-challenge-look',
  text: `select ek_sha256 as "ekSha256", ak_name as "akName", csr_sha256 as "csrSha256", secret_sha256 as "secretSha256",
           expires_at as "expiresAt", used_generation as "usedGeneration" from tpm_challenges where id = $1`,
};

async function assertAnswered({ challengeId, secret }: TpmAnswer, asked: TpmAsked, { db, now }: JoinServiceOptions): Promise<void> {
  const [kept] = await db.query<Kept>(look, [challengeId]);
  if (kept === undefined) throw denied('tpm-challenge-unknown', 'the challenge that is answered is not known here');
  if (kept.expiresAt <= now)
    throw denied('tpm-challenge-expired', `the challenge was answered after more than ${challengeLivesMs / minute} minutes`);
  const { ek, ak, csr } = asked;
  const same = [
    ['endorsement key', kept.ekSha256.toString('hex') === spkiDigest(ek)],
    ['attestation key', kept.akName.equals(ak.name)],
    ['request', kept.csrSha256.equals(csrSha256(csr))],
  ] as const;
  const other = same.find(([, fits]) => !fits)?.[0];
  if (other !== undefined) throw denied('tpm-challenge-differs', `the challenge was for another ${other}`);
  if (!kept.secretSha256.equals(sha256(secret))) throw denied('tpm-secret', 'the answer is not what the TPM was asked for');
}

function assertAttested({ attestation, secret }: TpmAnswer, { csr, ak }: TpmAsked): void {
  if (attestation === undefined)
    throw new ControlError('MALFORMED', 'the answer brings no attestation of the key', { details: { reason: 'evidence' } });
  verifyKeyAttestation(attestation, { spki: csr.spki, request: secret }, ak.name);
}

interface Proven extends TpmAsked {
  readonly challengeId: string;
}

const use = {
  name: 'tpm-challenge-use',
  text: 'update tpm_challenges set used_at = $2 where id = $1 and used_at is null and expires_at > $2 returning id',
};
const usedFor = { name: 'tpm-challenge-used-for', text: 'update tpm_challenges set used_generation = $2 where id = $1' };

/** Under the node's lock, where every end of an identity meets. */
async function claimNode(tx: Executor, proven: Proven, options: JoinServiceOptions): Promise<Claim> {
  const { challengeId, enrolment, ak } = proven;
  const id = nodeIdOf(enrolment);
  const before = await lockNode(tx, id);
  const [used] = await tx.query(use, [challengeId, instant(options.now)]);
  const held = used === undefined ? await generationUsed(tx, challengeId, before) : await generationHeld(tx, { proven, before }, options);
  const generation = held ?? (await admit(tx, proven, options)).identityGeneration;
  if (used !== undefined) await tx.query(usedFor, [challengeId, generation]);
  const { siteId, role } = enrolment;
  return { node: { id, siteId, role, generation }, repeated: held !== null, statements: [tpmAkUri(ak.name)] };
}

/** The same answer came before. @throws PERMISSION_DENIED when the identity that it was used for is over */
async function generationUsed(tx: Executor, challengeId: string, node: NodeFacts | undefined): Promise<number> {
  const [kept] = await tx.query<Kept>(look, [challengeId]);
  if (node?.state === 'active' && kept?.usedGeneration === node.identityGeneration) return node.identityGeneration;
  throw denied('tpm-challenge-used', 'the challenge was answered before, and the identity that this gave is over');
}

interface Holding {
  readonly proven: Proven;
  readonly before: NodeFacts | undefined;
}

/** The machine asks again because the answer was lost: it has what it asks for. null when it has not. */
async function generationHeld(tx: Executor, { proven, before }: Holding, { now }: JoinServiceOptions): Promise<number | null> {
  const { csr, ak, enrolment } = proven;
  if (before?.state !== 'active' || before.siteId !== enrolment.siteId || before.role !== enrolment.role) return null;
  const generation = before.identityGeneration;
  const known = await findValidCertificate(tx, { nodeId: before.id, generation, spki: csr.spki, now });
  return known?.uriSans.includes(tpmAkUri(ak.name)) === true ? generation : null;
}

function admit(tx: Executor, { enrolment, ak, challengeId, request }: Proven, { now }: JoinServiceOptions): Promise<NodeFacts> {
  const { siteId, role, tenantId, ekSha256 } = enrolment;
  const nodeId = nodeIdOf(enrolment);
  return admitNode(tx, {
    nodeId,
    siteId,
    role,
    tenantId,
    now,
    word: 'the inventory of TPMs',
    evidenceId: challengeId,
    mayReplace: (before) => {
      // Somebody's word ended it, so somebody's word begins it anew: a join token for this node.
      if (before.state === 'revoked')
        throw denied('node-not-active', `node ${nodeId} was revoked: it needs a join token before its TPM counts again`);
      return before.role === role;
    },
    hardware: request.hardware,
    actor: `node/${nodeId}`,
    details: { attestor: 'tpm', endorsementKey: ekSha256, attestationKey: Buffer.from(ak.name).toString('hex') },
  });
}
