/** Approvers for tests: keys, the set they make, and what they sign. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { signEnvelope } from '../../pki/envelope/index.ts';
import { signApproval, signApproverSet } from '../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { kidOf, signerFromPrivateKey } from '../../pki/x509/index.ts';

export const trustDomain = 'fleet.example';

export interface TestApprover {
  readonly kid: string;
  readonly spki: Uint8Array;
  readonly privateKey: KeyObject;
}

export function createApprover(): TestApprover {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = publicKey.export({ format: 'der', type: 'spki' });
  return { kid: kidOf(spki), spki, privateKey };
}

export const setOf = (approvers: readonly TestApprover[], threshold: number, epoch = 1): QuorumFields => ({
  ...noQuorum,
  approverKeys: approvers.map(({ kid, spki }) => ({ kid, spki })).sort((a, b) => (a.kid < b.kid ? -1 : 1)),
  approverThreshold: threshold,
  approverSetEpoch: epoch,
});

interface Encoded {
  readonly kid: string;
  readonly sig: string;
}

const encoded = ({ kid, sig }: { kid: string; sig: Uint8Array }): Encoded => ({ kid, sig: Buffer.from(sig).toString('base64url') });

export interface OverrideWords {
  readonly rotationId: string;
  readonly kind: string;
  readonly subject: string;
  readonly reason: string;
  readonly domain?: string;
}

export const approveOverride = async (
  by: TestApprover,
  { rotationId, kind, subject, reason, domain = trustDomain }: OverrideWords,
): Promise<Encoded> =>
  encoded(await signEnvelope(signerFromPrivateKey(by.privateKey), 'rotation-override', [rotationId, kind, subject, reason, domain]));

export const approveSet = async (
  by: TestApprover,
  quorum: QuorumFields,
  { epoch, domain = trustDomain }: { epoch: number; domain?: string },
): Promise<Encoded> => encoded(await signApproverSet(signerFromPrivateKey(by.privateKey), { epoch, quorum, trustDomain: domain }));

export const approveBatchFacts = async (by: TestApprover, facts: Parameters<typeof signApproval>[1]): Promise<Encoded> =>
  encoded(await signApproval(signerFromPrivateKey(by.privateKey), facts));
