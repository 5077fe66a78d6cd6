/** A workload issuer's keys as objects: made, read from storage, and written for it (WID-003, WID-021). */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { addWorkloadKey, assertWorkloadRing, type WorkloadKeyState, type WorkloadRing } from '../../domain/workload/keys.ts';
import { parsePem } from '../bundle/pem.ts';
import { jwkThumbprint } from '../jose/index.ts';
import { readPrivateKey, type Signer, signerFromPrivateKey, spkiOf } from '../x509/index.ts';

/** One key as it is stored. Its `privateKey` is a secret: it belongs into a secret store, never into a log (WID-042). */
export interface StoredWorkloadKey {
  /** RFC 7638 thumbprint. */
  readonly kid: string;
  readonly state: WorkloadKeyState['state'];
  /** Unix milliseconds. */
  readonly addedAt: number;
  /** Of a former key: when it stopped signing. */
  readonly stoppedAt?: number;
  /** PKCS#8 PEM. */
  readonly privateKey: string;
}

export interface HeldKey {
  readonly spki: Uint8Array;
  readonly privateKey: KeyObject;
  readonly signer: Signer;
}

/** The ring, and the key behind each of its names. */
export interface WorkloadKeys {
  readonly ring: WorkloadRing;
  readonly held: ReadonlyMap<string, HeldKey>;
}

const held = (privateKey: KeyObject): HeldKey => ({ spki: spkiOf(privateKey), privateKey, signer: signerFromPrivateKey(privateKey) });

/** A key nobody has seen before, beside those there are. @throws INVALID_STATE when the ring is full */
export function withNewKey({ ring, held: keys }: WorkloadKeys, now: number): WorkloadKeys & { readonly kid: string } {
  const key = held(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  const kid = jwkThumbprint(key.spki);
  return { kid, ring: addWorkloadKey(ring, { kid, now }).ring, held: new Map([...keys, [kid, key]]) };
}

export const noKeys: WorkloadKeys = Object.freeze({ ring: new Map(), held: new Map() });

/** What storage needs to make the same issuer again (WID-021). Handle it as a secret. */
export const storedKeysOf = ({ ring, held: keys }: WorkloadKeys): StoredWorkloadKey[] =>
  [...ring].map(([kid, state]) => ({
    kid,
    ...state,
    privateKey: (keys.get(kid) as HeldKey).privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  }));

/**
 * Reads what storedKeysOf wrote.
 *
 * @throws INVALID_CONFIG (workload-keys) naming the entry and the field, never its value; INVALID_INPUT (key-ring) when the states
 *   do not fit together
 */
export function readStoredKeys(stored: readonly StoredWorkloadKey[]): WorkloadKeys {
  const ring = new Map<string, WorkloadKeyState>();
  const keys = new Map<string, HeldKey>();
  for (const [at, entry] of stored.entries()) {
    const key = readHeldKey(entry.privateKey, at);
    const kid = jwkThumbprint(key.spki);
    if (entry.kid !== kid) throw invalid(at, 'kid', 'is not the thumbprint of its key');
    if (ring.has(kid)) throw invalid(at, 'kid', 'stands twice');
    ring.set(kid, readState(entry, at));
    keys.set(kid, key);
  }
  assertWorkloadRing(ring);
  return { ring, held: keys };
}

function readState({ state, addedAt, stoppedAt }: StoredWorkloadKey, at: number): WorkloadKeyState {
  switch (state) {
    case 'waiting':
    case 'signing':
      if (stoppedAt !== undefined) throw invalid(at, 'stoppedAt', `is not for a key that is ${state}`);
      return { state, addedAt };
    case 'former':
      if (stoppedAt === undefined) throw invalid(at, 'stoppedAt', 'is missing');
      return { state, addedAt, stoppedAt };
  }
  throw invalid(at, 'state', 'is none of waiting, signing and former');
}

function readHeldKey(pem: unknown, at: number): HeldKey {
  const der = typeof pem === 'string' ? parsePem('PRIVATE KEY', pem) : null;
  if (der === null) throw invalid(at, 'privateKey', 'is not one PKCS#8 PEM');
  let key: KeyObject;
  try {
    key = readPrivateKey(der);
  } catch {
    // Never the cause: an OpenSSL message may quote what it read.
    throw invalid(at, 'privateKey', 'is not one PKCS#8 PEM');
  }
  if (key.asymmetricKeyDetails?.namedCurve !== 'prime256v1') throw invalid(at, 'privateKey', 'is not on P-256');
  return held(key);
}

const invalid = (at: number, field: string, what: string): ControlError =>
  new ControlError('INVALID_CONFIG', `workload key ${at + 1}: ${field} ${what}`, { details: { reason: 'workload-keys', field } });
