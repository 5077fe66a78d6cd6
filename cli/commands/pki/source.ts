/** Where the pki commands find the bundle, and the rules that all of them share about its secret. */
import { resolve } from 'node:path';
import { Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import type { BundleStore, OpenBundleOptions } from '../../../pki/bundle/index.ts';
import { type BundleFileStore, createBundleFileStore } from '../../../runtime/bundle-file-store.ts';
import type { Ports } from '../../ports.ts';

export const allowUnauthenticatedName = 'BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED';

export const pkiOption = (): Option =>
  new Option('--pki <file>', 'key bundle (default: BETTER_COMPUTE_PKI, else pki.json in the state folder)');

/** The path the flag, the environment or the state folder names. */
export const bundlePathOf = (flag: string | null, ports: Ports): string => (flag === null ? ports.settings.bundlePath : resolve(flag));

export const fileStoreOf = (flag: string | null, ports: Ports): BundleFileStore => createBundleFileStore(bundlePathOf(flag, ports));

/** An empty variable is one that is not set. */
export const secretOf = ({ io }: Ports): string | undefined => io.env['BETTER_COMPUTE_SECRET'] || undefined;

/** How a command that only reads private keys opens a bundle: as every process of the deployment does (KEY-041). */
export function openOptionsOf(ports: Ports): OpenBundleOptions {
  const secret = secretOf(ports);
  return { ...(secret === undefined ? {} : { secret }), allowUnauthenticated: ports.io.env[allowUnauthenticatedName] === '1' };
}

/**
 * Stands first in every command that writes the bundle back: it would vouch for content that nobody vouched for (CLI-058).
 *
 * @throws INVALID_STATE when the variable is 1
 */
export function assertMayWriteBack({ io }: Ports): void {
  if (io.env[allowUnauthenticatedName] !== '1') return;
  throw new ControlError(
    'INVALID_STATE',
    `this command writes the key bundle back, and ${allowUnauthenticatedName}=1 lets it read one that nothing vouches for`,
    {
      details: {
        reason: 'unauthenticated-write-back',
        hint: `unset ${allowUnauthenticatedName}; a bundle that nothing vouches for is sealed by: better-compute pki reseal`,
      },
    },
  );
}

export type { BundleStore };
