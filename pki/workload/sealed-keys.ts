/**
 * The keys of an issuer at rest: sealed under the deployment's secret, whole, with their states.
 *
 * A sealed row (pki/bundle/sealed-row.ts) whose AAD is issuer 0x00 revision.
 *
 * Whoever can write where it is kept but lacks the secret cannot add a key, publish one, or make another one sign; he can put an older
 * ring back. Its own info text keeps this seal apart from that of the key bundle, under the same secret.
 */
import { ControlError } from '../../domain/errors.ts';
import { openRow, sealRow } from '../bundle/sealed-row.ts';
import type { StoredWorkloadKey } from './keys.ts';

export interface WorkloadSeal {
  readonly secret: string;
  readonly issuer: string;
  /** Raised by one at every change. */
  readonly revision: number;
}

const rowOf = ({ secret, issuer, revision }: WorkloadSeal) => ({
  secret,
  info: 'better-compute workload keys v1',
  aad: `${issuer}\0${revision}`,
});

/** @throws MISSING_ENV for a secret under 32 characters */
export const sealWorkloadKeys = (keys: readonly StoredWorkloadKey[], seal: WorkloadSeal): Uint8Array =>
  sealRow(Buffer.from(JSON.stringify(keys), 'utf8'), rowOf(seal));

/** @throws INVALID_CONFIG (workload-seal) when the secret is another, or a byte, the issuer or the revision was changed */
export function openWorkloadKeys(sealed: Uint8Array, seal: WorkloadSeal): StoredWorkloadKey[] {
  try {
    return JSON.parse(Buffer.from(openRow(sealed, rowOf(seal))).toString('utf8')) as StoredWorkloadKey[];
  } catch (cause) {
    throw new ControlError(
      'INVALID_CONFIG',
      `the stored keys of ${seal.issuer} do not open: BETTER_COMPUTE_SECRET is not the one they were sealed with, or the row was changed; restore it from a backup`,
      { details: { reason: 'workload-seal' }, cause },
    );
  }
}
