/**
 * A whole renewal but for its rows in the database: the request is decoded, its CSR proven, the chain verified, the identity read, the
 * proof of possession checked, the certificate issued and the answer encoded, in the order of services/renew.ts.
 *
 * Counted in the bare work is what the protocol needs, each in its cheapest form:
 *   one signature            the new certificate's
 *   three verifications      the CSR by its key, the presented certificate by the authority's, the proof by the presented one's
 *   two keys read            the CSR's and the presented certificate's: both come as bytes of a stranger, and node:crypto verifies by
 *                            nothing else; by coordinates, which takes half the time of a DER
 * Not counted: the check of what was signed, by sample for agents, and every parse. The detail has the ratio to the signature and the
 * verifications alone, under one key that is at hand: no renewal could do that.
 */
import { createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto';
import { createBundle } from '../../pki/bundle/index.ts';
import { signRenewProof, verifyRenewProof } from '../../pki/enroll/index.ts';
import { createCsr, issueLeaf, nodeIdentityOf, parseCsr, publicKeyOf, signerFromPrivateKey, verifyChain } from '../../pki/x509/index.ts';
import { decodeMessage, encodeMessage, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import type { Figure } from './main.ts';
import { atLeast, inTurns } from './turns.ts';

const goal = 0.5;
/** A gateway's api renews all day: some thousand renewals until V8 has compiled the way for good. */
const warmUps = 30;
const trustDomain = 'bench.example';

export async function figure(): Promise<Figure> {
  const now = Date.now();
  const { nodeCa } = await createBundle({ trustDomain, now });
  const ca = { certificate: nodeCa.certificate.der, signer: nodeCa.signer() };
  const [present, next] = [newKey(), newKey()];
  const identity = { trustDomain, siteId: 'site', nodeId: 'node-1' };
  const leaf = await issueLeaf({ ca, profile: 'node', spki: present.signer.spki, identity, now });
  const csr = await createCsr({ key: next.privateKey });
  const timeMs = BigInt(now);
  const proof = await signRenewProof(present.signer, { csr, nodeId: identity.nodeId, timeMs });
  const bytes = encodeMessage(RenewRequestSchema, { csr, chain: [leaf.der], timeMs, proof }, 'renewRequest');
  const ours = async (): Promise<Uint8Array> => {
    const request = decodeMessage(RenewRequestSchema, bytes, 'renewRequest');
    const { spki } = parseCsr(request.csr);
    const { leaf: shown } = verifyChain(request.chain, { anchors: [ca.certificate], now, purpose: 'client' });
    const { siteId, nodeId, role } = nodeIdentityOf(shown, trustDomain);
    verifyRenewProof(request.proof, { csr: request.csr, nodeId, timeMs: request.timeMs }, shown.spki);
    const certificate = await issueLeaf({
      ca,
      profile: role === 'node' ? 'node' : 'site',
      spki,
      identity: { trustDomain, siteId, nodeId },
      now,
    });
    return encodeMessage(RenewResponseSchema, { chain: [certificate.der, ca.certificate], serverTimeMs: timeMs }, 'renewResponse');
  };
  const { privateKey, publicKey } = present;
  const signature = sign('sha256', leaf.tbs, { key: privateKey, dsaEncoding: 'ieee-p1363' });
  const verifyOnce = (): boolean => verify('sha256', leaf.tbs, { key: publicKey, dsaEncoding: 'ieee-p1363' }, signature);
  const signAndVerify = (): boolean => {
    sign('sha256', leaf.tbs, { key: privateKey, dsaEncoding: 'ieee-p1363' });
    return verifyOnce() && verifyOnce() && verifyOnce();
  };
  const coordinates = publicKeyOf(present.signer.spki).export({ format: 'jwk' });
  const verifyAsSent = (): boolean => {
    const key = createPublicKey({ key: coordinates, format: 'jwk' });
    return verify('sha256', leaf.tbs, { key, dsaEncoding: 'ieee-p1363' }, signature);
  };
  const bare = (): boolean => {
    sign('sha256', leaf.tbs, { key: privateKey, dsaEncoding: 'ieee-p1363' });
    return verifyAsSent() && verifyOnce() && verifyAsSent();
  };
  const turns = await inTurns({ ours, bare, perRound: 100, warmUps });
  return atLeast('renew', goal, { ...turns, detail: { keysAtHand: await inTurns({ ours, bare: signAndVerify, perRound: 100, warmUps }) } });
}

const newKey = () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { privateKey, publicKey, signer: signerFromPrivateKey(privateKey) };
};
