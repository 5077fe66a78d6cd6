/** Approvers with keys, the golden files, and what is signed by whom. */
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { signApproverSet } from '../../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../../pki/trust/index.ts';
import { kidOf, type Signer, signerFromPrivateKey } from '../../../pki/x509/index.ts';
import type { Signature } from '../../../proto/index.ts';

export const trustDomain = 'compute.example.com';
export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
export const bytes = (text: string): Buffer => Buffer.from(text, 'hex');

export interface Approver {
  readonly kid: string;
  readonly spki: Uint8Array;
  readonly signer: Signer;
}

export function createApprover(): Approver {
  const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  return { kid: kidOf(signer.spki), spki: signer.spki, signer };
}

export const [alice, bob, carol, dave, mallory] = Array.from({ length: 5 }, createApprover) as [
  Approver,
  Approver,
  Approver,
  Approver,
  Approver,
];

/** A set of these approvers. */
export const setOf = (approvers: readonly Approver[], approverThreshold: number, change: Partial<QuorumFields> = {}): QuorumFields => ({
  ...noQuorum,
  approverKeys: approvers.map(({ kid, spki }) => ({ kid, spki })),
  approverThreshold,
  ...change,
});

/** The set at its epoch, signed by these. */
export async function signedSet(
  quorum: QuorumFields,
  epoch: number,
  { by = [], domain = trustDomain }: { by?: readonly Approver[]; domain?: string } = {},
): Promise<QuorumFields> {
  const signatures = await Promise.all(by.map(({ signer }) => signApproverSet(signer, { epoch, quorum, trustDomain: domain })));
  return { ...quorum, approverSetEpoch: epoch, approverSetSignatures: signatures };
}

const order = BigInt('0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551');

/** (r, n − s): the other form of the same signature. */
export function malleated<S extends Pick<Signature, 'sig'>>(signature: S): S {
  const s = order - BigInt(`0x${hex(signature.sig.subarray(32))}`);
  return { ...signature, sig: Buffer.concat([signature.sig.subarray(0, 32), bytes(s.toString(16).padStart(64, '0'))]) };
}

const golden = (name: string): unknown => JSON.parse(readFileSync(join(import.meta.dirname, '../../golden', name), 'utf8'));

export interface GoldenLeaf {
  readonly subject: string;
  readonly kind: string;
  readonly payloadSha256: string;
}

export interface GoldenScopes {
  readonly spki: string;
  readonly kid: string;
  readonly scopes: readonly {
    readonly name: string;
    readonly batchId: string;
    readonly leaves: readonly GoldenLeaf[];
    readonly leafHashes: readonly string[];
    readonly size: number;
    readonly root: string;
    readonly proofs: readonly { readonly index: number; readonly leaf: string; readonly siblings: readonly string[] }[];
  }[];
  readonly subjects: readonly {
    readonly rule: 'node' | 'bmc' | 'target';
    readonly nodeId: string;
    readonly payload: object;
    readonly subject: string | null;
  }[];
  readonly approvals: readonly {
    readonly batchId: string;
    readonly root: string;
    readonly size: number;
    readonly notAfterMs: number;
    readonly trustDomain: string;
    readonly input: string;
    readonly signature: string;
    readonly malleated: string;
  }[];
}

export interface GoldenSets {
  readonly keys: Readonly<Record<string, { readonly spki: string; readonly kid: string }>>;
  readonly sets: readonly {
    readonly name: string;
    readonly approvers: readonly string[];
    readonly threshold: number;
    readonly tiers: readonly { readonly maxScopeSize: number; readonly threshold: number }[];
    readonly unbatchedPerHour: number;
    readonly input: string;
    readonly sha256: string;
    readonly epoch: number;
    readonly signed: readonly {
      readonly trustDomain: string;
      readonly signingInput: string;
      readonly signatures: readonly { readonly approver: string; readonly kid: string; readonly sig: string }[];
    }[];
  }[];
}

/** test/golden/batch-scope.json. */
export const goldenScopes = golden('batch-scope.json') as GoldenScopes;
/** test/golden/approver-set.json. */
export const goldenSets = golden('approver-set.json') as GoldenSets;

/** The quorum fields of a golden set, at its epoch, with what is signed for a trust domain. */
export function goldenQuorum(set: GoldenSets['sets'][number], domain = trustDomain): QuorumFields {
  const signed = set.signed.find((entry) => entry.trustDomain === domain);
  return {
    approverKeys: set.approvers.map((name) => ({ kid: goldenSets.keys[name]?.kid ?? '', spki: bytes(goldenSets.keys[name]?.spki ?? '') })),
    approverThreshold: set.threshold,
    tiers: set.tiers,
    unbatchedDestructivePerHour: set.unbatchedPerHour,
    approverSetEpoch: set.epoch,
    approverSetSignatures: (signed?.signatures ?? []).map(({ kid, sig }) => ({ kid, sig: bytes(sig) })),
  };
}
