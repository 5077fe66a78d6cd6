/**
 * Renewal of the node's certificate (RENEW-001, RENEW-002, H-14): at 60 % ± 10 % of its life, at a moment that is the node's own and
 * always the same, so that a fleet that joined in one minute does not renew in one. A new key each time.
 *
 * The answer is not signed; it travels on a connection whose server we pinned, and is checked against what we hold: our new
 * key, our own identity, the authority that certified us before. A gateway that hands out something else changes nothing.
 */
import { createHash, type KeyObject } from 'node:crypto';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { minute, second } from '../../domain/time.ts';
import { signRenewProof } from '../../pki/enroll/index.ts';
import { createCsr, grantedIdentityOf, parseCertificate, signerFromPrivateKey, spkiOf, verifyChain } from '../../pki/x509/index.ts';
import { bounds, decodeMessage, encodeMessage, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import { generateNodeKey, type Identity, type StoredIdentity } from '../state/identity.ts';
import { refusalFacts } from '../transport/grpc-status.ts';
import type { ServerClock } from '../trust/server-clock.ts';

/** When the certificate is to be renewed: pure, the same for the same node and certificate. */
export function renewsAt(leaf: { notBefore: number; notAfter: number }, nodeId: string): number {
  const unit = createHash('sha256').update(nodeId).digest().readUInt32BE(0) / 2 ** 32;
  return Math.round(leaf.notBefore + (leaf.notAfter - leaf.notBefore) * (0.5 + 0.2 * unit));
}

/** After a refusal: doubling from 30 s to 15 min, full jitter over the upper half, never before the wish of the server (C42). */
export function nextRenewalDelay(failures: number, pushbackMs: number | null, random: () => number): number {
  const spread = Math.min(15 * minute, 30 * second * 2 ** Math.min(failures, 10));
  return Math.round(Math.max(spread / 2, Math.min(pushbackMs ?? 0, 60 * minute)) + (spread / 2) * random());
}

export interface RenewalPorts {
  /** One Renew on a pinned connection. */
  readonly call: (request: Uint8Array) => Promise<Uint8Array>;
  readonly clock: ServerClock;
  readonly generateKey?: () => KeyObject;
}

/**
 * @returns the renewed identity; nothing is stored yet
 * @throws what the call throws; BAD_SIGNATURE, PERMISSION_DENIED or MALFORMED when the answer does not fit us
 */
export async function renewIdentity(stored: StoredIdentity, ports: RenewalPorts): Promise<StoredIdentity> {
  const key = (ports.generateKey ?? generateNodeKey)();
  const csr = await createCsr({ key });
  const answer = await callWithServerTime(stored, csr, ports);
  const { chain } = decodeAnswer(answer);
  assertOurs(stored.identity, { chain, key, now: ports.clock.now() });
  return { key, identity: { ...stored.identity, chain } };
}

/** A refusal for the clock carries the server's time: asked once more with it, and then it is an error (H-14, C45). */
async function callWithServerTime(stored: StoredIdentity, csr: Uint8Array, { call, clock }: RenewalPorts): Promise<Uint8Array> {
  const sentAtSteadyMs = clock.steadyMs();
  try {
    return await call(await renewRequest(stored, csr, clock.now()));
  } catch (error) {
    const { serverTimeMs } = refusalFacts(error);
    if (codeOf(error) !== 'CLOCK_SKEW' || serverTimeMs === null) throw error;
    clock.observe({ serverTimeMs, sentAtSteadyMs });
    return call(await renewRequest(stored, csr, clock.now()));
  }
}

/** The proof is by the current key, over the new request, the node and the time. */
async function renewRequest({ identity, key }: StoredIdentity, csr: Uint8Array, now: number): Promise<Uint8Array> {
  const timeMs = BigInt(Math.round(now));
  const proof = await signRenewProof(signerFromPrivateKey(key), { csr, nodeId: identity.nodeId, timeMs });
  return encodeMessage(RenewRequestSchema, { chain: [...identity.chain], csr, timeMs, proof }, 'renewRequest');
}

function decodeAnswer(bytes: Uint8Array): { chain: Uint8Array[] } {
  try {
    return decodeMessage(RenewResponseSchema, bytes, 'renewResponse');
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the answer to renew does not decode', { cause, details: { reason: 'renew-response' } });
  }
}

function assertOurs(identity: Identity, { chain, key, now }: { chain: readonly Uint8Array[]; key: KeyObject; now: number }): void {
  const [leafDer] = chain;
  if (leafDer === undefined || chain.length > bounds.certificateChainLength)
    throw unfit(`the renewed chain has ${chain.length} certificates`);
  const leaf = parseCertificate(leafDer);
  if (!Buffer.from(leaf.spki).equals(spkiOf(key))) throw unfit('the renewed certificate is for another key');
  const named = grantedIdentityOf(leaf, identity.trustDomain);
  if (named.nodeId !== identity.nodeId || named.siteId !== identity.siteId || named.role !== identity.role) {
    throw unfit(`the renewed certificate is for ${named.role} ${named.spiffeId}`);
  }
  if (leaf.notAfter <= parseCertificate(identity.chain[0] as Uint8Array).notAfter)
    throw unfit('the renewed certificate does not live longer than the one it replaces');
  verifyChain(chain, { anchors: identity.chain.slice(1), purpose: 'client', now: Math.max(now, leaf.notBefore) });
}

const unfit = (message: string): ControlError =>
  new ControlError('PERMISSION_DENIED', `not taken: ${message}`, { details: { reason: 'renewal-unfit' } });
