/**
 * The keys of an issuer at rest: sealed under the deployment's secret, whole, with their states.
 *
 *   key    = HKDF-SHA256(secret, salt, info)
 *   sealed = salt (32) || iv (12) || AES-256-GCM ciphertext || tag (16)
 *   AAD    = issuer 0x00 revision
 *
 * Whoever can write where it is kept but lacks the secret cannot add a key, publish one, or make another one sign; he can put an older
 * ring back. Its own info text keeps this seal apart from that of the key bundle, under the same secret.
 */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { assertSealingSecret } from '../bundle/seal.ts';
import { gcmSizes, hkdfSha256, openGcm, sealGcm } from '../jose/index.ts';
import type { StoredWorkloadKey } from './keys.ts';

export interface WorkloadSeal {
  readonly secret: string;
  readonly issuer: string;
  /** Raised by one at every change. */
  readonly revision: number;
}

const info = 'better-compute workload keys v1';
const saltBytes = 32;
const leastBytes = saltBytes + gcmSizes.iv + gcmSizes.tag;

const boxOf = ({ secret, issuer, revision }: WorkloadSeal, salt: Uint8Array, iv: Uint8Array) => ({
  key: hkdfSha256({ ikm: Buffer.from(secret, 'utf8'), salt, info, size: gcmSizes.key }),
  iv,
  aad: Buffer.from(`${issuer}\0${revision}`, 'utf8'),
});

/** @throws MISSING_ENV for a secret under 32 characters */
export function sealWorkloadKeys(keys: readonly StoredWorkloadKey[], seal: WorkloadSeal): Uint8Array {
  assertSealingSecret(seal.secret);
  const [salt, iv] = [randomBytes(saltBytes), randomBytes(gcmSizes.iv)];
  const { ciphertext, tag } = sealGcm(boxOf(seal, salt, iv), Buffer.from(JSON.stringify(keys), 'utf8'));
  return Buffer.concat([salt, iv, ciphertext, tag]);
}

/** @throws INVALID_CONFIG (workload-seal) when the secret is another, or a byte, the issuer or the revision was changed */
export function openWorkloadKeys(sealed: Uint8Array, seal: WorkloadSeal): StoredWorkloadKey[] {
  const bytes = Buffer.from(sealed);
  const refuse = (cause?: unknown): never => {
    throw new ControlError(
      'INVALID_CONFIG',
      `the stored keys of ${seal.issuer} do not open: BETTER_COMPUTE_SECRET is not the one they were sealed with, or the row was changed; restore it from a backup`,
      { details: { reason: 'workload-seal' }, ...(cause === undefined ? {} : { cause }) },
    );
  };
  if (bytes.length < leastBytes) return refuse();
  const salt = bytes.subarray(0, saltBytes);
  const iv = bytes.subarray(saltBytes, saltBytes + gcmSizes.iv);
  const [ciphertext, tag] = [bytes.subarray(saltBytes + gcmSizes.iv, -gcmSizes.tag), bytes.subarray(-gcmSizes.tag)];
  try {
    return JSON.parse(openGcm({ ...boxOf(seal, salt, iv), ciphertext, tag }).toString('utf8')) as StoredWorkloadKey[];
  } catch (cause) {
    return refuse(cause);
  }
}
