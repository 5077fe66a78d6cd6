/**
 * Worker keys: what signs commands and desired state (SIGN-001 to SIGN-004, SPEC-001). A process makes its own key, keeps it
 * in memory only, and has the command-signing root certify it for at most a day.
 */
import { generateKeyPairSync } from 'node:crypto';
import type { Signature } from '../../proto/index.ts';
import {
  type Certificate,
  type CertificateAuthority,
  certificateId,
  issueLeaf,
  type Signer,
  signerFromPrivateKey,
  spkiOf,
} from '../x509/index.ts';
import { signEnvelope } from './envelope.ts';

export interface WorkerKey {
  readonly signer: Signer;
  /** DER; travels with every signature. */
  readonly certificate: Uint8Array;
  readonly rootId: string;
  readonly notBefore: number;
  readonly notAfter: number;
  readonly serial: string;
}

export interface CreateWorkerKeyOptions {
  readonly root: CertificateAuthority;
  readonly now: number;
  /** Longest life; the profile's 24 h bounds it. */
  readonly lifetimeMs: number;
  /** Reserved by the caller before anything is signed (H-15). */
  readonly serial: string;
}

/** @throws CA_EXPIRED when the root has under ten minutes left (H-13) */
export async function createWorkerKey({ root, now, lifetimeMs, serial }: CreateWorkerKeyOptions): Promise<WorkerKey> {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate: Certificate = await issueLeaf({ ca: root, profile: 'worker', spki: spkiOf(publicKey), lifetimeMs, now, serial });
  return Object.freeze({
    signer: signerFromPrivateKey(privateKey),
    certificate: certificate.der,
    rootId: certificateId(root.certificate),
    notBefore: certificate.notBefore,
    notAfter: certificate.notAfter,
    serial: certificate.serial,
  });
}

/** Signs an encoded CommandBody. */
export const signCommand = (worker: WorkerKey, body: Uint8Array): Promise<Signature> => signIntent(worker, 'command', body);

/** Signs an encoded DesiredStateBody (SPEC-004). */
export const signDesiredState = (worker: WorkerKey, body: Uint8Array): Promise<Signature> => signIntent(worker, 'desired-state', body);

async function signIntent(worker: WorkerKey, purpose: IntentPurpose, body: Uint8Array): Promise<Signature> {
  const signature = await signEnvelope(worker.signer, purpose, [body]);
  signature.chain = [worker.certificate];
  return signature;
}

/** What a worker key may sign. */
export type IntentPurpose = 'command' | 'desired-state';
