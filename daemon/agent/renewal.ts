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
import {
  type Certificate,
  createCsr,
  grantedIdentityOf,
  isNodeKeyStatement,
  parseCertificate,
  signerFromPrivateKey,
  spkiOf,
  verifyChain,
} from '../../pki/x509/index.ts';
import { bounds, decodeMessage, encodeMessage, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import { generateNodeKey, type Identity, type StoredIdentity } from '../state/identity.ts';
import type { AttestNextKey } from '../tpm/attest.ts';
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
  /** Speaks for the next key where the certificate states that something has to. */
  readonly attest: AttestNextKey;
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
async function callWithServerTime(stored: StoredIdentity, csr: Uint8Array, { call, clock, attest }: RenewalPorts): Promise<Uint8Array> {
  const sentAtSteadyMs = clock.steadyMs();
  try {
    return await call(await renewRequest(stored, { csr, now: clock.now() }, attest));
  } catch (error) {
    const { serverTimeMs } = refusalFacts(error);
    if (codeOf(error) !== 'CLOCK_SKEW' || serverTimeMs === null) throw error;
    clock.observe({ serverTimeMs, sentAtSteadyMs });
    return call(await renewRequest(stored, { csr, now: clock.now() }, attest));
  }
}

interface Renewing {
  readonly csr: Uint8Array;
  readonly now: number;
}

/** The proof is by the current key, over the new request, the node and the time; so is what a TPM says of the new key (RENEW-008). */
async function renewRequest({ identity, key }: StoredIdentity, { csr, now }: Renewing, attest: AttestNextKey): Promise<Uint8Array> {
  const statement = { csr, nodeId: identity.nodeId, timeMs: BigInt(Math.round(now)) };
  const keyAttestation = await attest({ identity, statement });
  const proof = await signRenewProof(signerFromPrivateKey(key), statement);
  const message = { chain: [...identity.chain], csr, timeMs: statement.timeMs, proof, keyAttestation };
  return encodeMessage(RenewRequestSchema, message, 'renewRequest');
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
  assertSameStatements(identity, leaf);
  if (leaf.notAfter <= parseCertificate(identity.chain[0] as Uint8Array).notAfter)
    throw unfit('the renewed certificate does not live longer than the one it replaces');
  verifyChain(chain, { anchors: identity.chain.slice(1), purpose: 'client', now: Math.max(now, leaf.notBefore) });
}

/** RENEW-010: what was proved about the node's keys is neither lost nor gained on the way. */
function assertSameStatements({ chain }: Identity, leaf: Certificate): void {
  const statementsOf = ({ uriSans }: Certificate): string => uriSans.filter(isNodeKeyStatement).join(' ');
  const before = statementsOf(parseCertificate(chain[0] as Uint8Array));
  if (statementsOf(leaf) !== before)
    throw unfit(`the renewed certificate states ${statementsOf(leaf) || 'nothing'} about its key, not ${before || 'nothing'}`);
}

const unfit = (message: string): ControlError =>
  new ControlError('PERMISSION_DENIED', `not taken: ${message}`, { details: { reason: 'renewal-unfit' } });
