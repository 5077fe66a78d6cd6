/** A rotation's evidence, made by the same code as in production, with a key and a clock of the test's own. */
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { productionTimes } from '../../../domain/rotation/gates.ts';
import { day, hour, minute } from '../../../domain/time.ts';
import { createStageEvidence, type EvidenceSigner, type SignedEvidence, type StageFacts } from '../../../pki/audit/evidence.ts';

export interface AuditKey {
  readonly signer: EvidenceSigner;
  readonly spki: Uint8Array;
  readonly pin: string;
}

export function createAuditKey(): AuditKey {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }));
  return {
    spki,
    pin: `sha256/${createHash('sha256').update(spki).digest('base64')}`,
    signer: { sign: async (input) => new Uint8Array(sign('sha256', input, { key: privateKey, dsaEncoding: 'ieee-p1363' })) },
  };
}

export const startedAt = Date.UTC(2030, 0, 1);
export const rootA = 'a'.repeat(64);
export const rootB = 'b'.repeat(64);
const digest = 'd'.repeat(64);

const base: StageFacts = {
  trustDomain: 'compute.example.com',
  rotationId: 'rotation-1',
  stage: 'plan',
  at: startedAt,
  actor: 'system',
  bundle: { digest, generation: 1 },
  roots: { signing: rootA, trusted: [rootA], old: rootA, new: null },
  publishedVersion: 1,
  fleet: null,
  processes: null,
  overrides: [],
  times: productionTimes,
  overlap: null,
};

const both = { signing: rootA, trusted: [rootB, rootA], old: rootA, new: rootB };
const nodes = [
  { nodeId: 'node-b', version: 2 },
  { nodeId: 'node-a', version: 3 },
];
const switchedAt = startedAt + hour;
export const droppedAt = switchedAt + day + 5 * minute;

/** The facts of a rotation that went well, stage by stage. */
export const goodRotation: readonly StageFacts[] = [
  base,
  { ...base, stage: 'add', at: startedAt + minute, roots: both, bundle: { digest, generation: 2 } },
  {
    ...base,
    stage: 'processes',
    at: startedAt + 2 * minute,
    roots: both,
    publishedVersion: 2,
    processes: [
      { id: 'api@1', kind: 'api', bundleDigest: digest, publishedVersionSeen: null },
      { id: 'gateway@1', kind: 'gateway', bundleDigest: null, publishedVersionSeen: 2 },
    ],
  },
  { ...base, stage: 'fleet', at: switchedAt - 1, roots: both, publishedVersion: 2, fleet: { version: 2, nodes } },
  { ...base, stage: 'switch', at: switchedAt, roots: { ...both, signing: rootB }, publishedVersion: 2, fleet: { version: 2, nodes } },
  { ...base, stage: 'resign', at: switchedAt + minute, roots: { ...both, signing: rootB }, publishedVersion: 2 },
  {
    ...base,
    stage: 'drop',
    at: droppedAt,
    roots: { signing: rootB, trusted: [rootB], old: rootA, new: rootB },
    publishedVersion: 3,
    overlap: { switchedAt, lastWorkerNotAfter: switchedAt + day, opensAt: switchedAt + day + 2 * minute, forcedReason: '' },
  },
  {
    ...base,
    stage: 'confirm',
    at: droppedAt + minute,
    roots: { signing: rootB, trusted: [rootB], old: rootA, new: rootB },
    publishedVersion: 3,
  },
];

export const pick = (stages: readonly StageFacts['stage'][]): StageFacts[] => goodRotation.filter(({ stage }) => stages.includes(stage));

/** Replaces fields of one stage. */
export const change = (stage: StageFacts['stage'], fields: Partial<StageFacts>, all: readonly StageFacts[] = goodRotation): StageFacts[] =>
  all.map((facts) => (facts.stage === stage ? { ...facts, ...fields } : facts));

export async function signAll(key: AuditKey, facts: readonly StageFacts[]): Promise<SignedEvidence[]> {
  const signed: SignedEvidence[] = [];
  for (const one of facts) signed.push(await createStageEvidence({ signer: key.signer, facts: one, previous: signed.at(-1) ?? null }));
  return signed;
}
