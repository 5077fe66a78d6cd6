/**
 * A chain as daemons and gateways judge it: leaf, node CA, root as the anchor, parsed anew each time because a peer chose every byte;
 * against the two ECDSA verifications that it needs, and nothing else. The detail has the shorter chain whose anchor is the node CA.
 */
import { generateKeyPairSync } from 'node:crypto';
import { createBundle } from '../../pki/bundle/index.ts';
import { issueLeaf, parseCertificate, spkiOf, verifyChain } from '../../pki/x509/index.ts';
import { rawFromDerSignature, verifyRaw } from '../../pki/x509/signature.ts';
import type { Figure } from './main.ts';
import { atMost, inTurns } from './turns.ts';

const goal = 3;
const trustDomain = 'bench.example';

export async function figure(): Promise<Figure> {
  const now = Date.now();
  const { rootCa, nodeCa } = await createBundle({ trustDomain, now });
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leaf = await issueLeaf({
    ca: { certificate: nodeCa.certificate.der, signer: nodeCa.signer() },
    profile: 'node',
    spki: spkiOf(publicKey),
    identity: { trustDomain, siteId: 'site', nodeId: 'node-1' },
    now,
  });
  const chain = [leaf.der, nodeCa.certificate.der];
  const [parsedLeaf, parsedCa] = [parseCertificate(leaf.der), parseCertificate(nodeCa.certificate.der)];
  const byCa = { input: parsedLeaf.tbs, signature: rawFromDerSignature(parsedLeaf.signature), key: parsedCa.publicKey };
  const byRoot = { input: parsedCa.tbs, signature: rawFromDerSignature(parsedCa.signature), key: rootCa.publicKey };
  const verifyOne = ({ key, input, signature }: typeof byCa): boolean => verifyRaw(key, input, signature);
  const perRound = 200;
  const long = await inTurns({
    ours: () => verifyChain(chain, { anchors: [rootCa.certificate.der], now, purpose: 'client' }),
    bare: () => verifyOne(byCa) && verifyOne(byRoot),
    perRound,
  });
  const short = await inTurns({
    ours: () => verifyChain([leaf.der], { anchors: [nodeCa.certificate.der], now, purpose: 'client' }),
    bare: () => verifyOne(byCa),
    perRound,
  });
  return atMost('verify', goal, { ...long, detail: { anchoredAtNodeCa: short } });
}
