/** Where the pki commands find the bundle, and the rules that all of them share about its secret. */
import { resolve } from 'node:path';
import { Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import type { BundleStore, OpenBundleOptions } from '../../../pki/bundle/index.ts';
import { createBundleFileStore } from '../../../runtime/bundle-file-store.ts';
import type { Ports } from '../../ports.ts';

export const allowUnauthenticatedName = 'BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED';

export const pkiOption = (): Option =>
  new Option('--pki <file>', 'key bundle (default: BETTER_COMPUTE_PKI, else pki.json in the state folder)');

export interface BundleSource extends Pick<BundleStore, 'read' | 'replace'> {
  /** A path, or words for the database: how messages call it. */
  readonly name: string;
  /** Writes the first bundle. @throws INVALID_STATE when there is one (CLI-006) */
  create(text: string): Promise<unknown>;
}

/** The path the flag, the environment or the state folder names. */
export const bundlePathOf = (flag: string | null, ports: Ports): string => (flag === null ? ports.settings.bundlePath : resolve(flag));

const isInDatabase = (flag: string | null, { settings }: Ports): boolean => flag === null && settings.bundleInDatabase;

/** Opens the bundle's place, a file or the row of the database, for the time of `work`. */
export async function withSource<T>(flag: string | null, ports: Ports, work: (source: BundleSource) => Promise<T>): Promise<T> {
  if (isInDatabase(flag, ports)) return withDatabaseSource(ports, work);
  const store = createBundleFileStore(bundlePathOf(flag, ports));
  return work({ ...store, name: store.path });
}

async function withDatabaseSource<T>(ports: Ports, work: (source: BundleSource) => Promise<T>): Promise<T> {
  const url = ports.settings.databaseUrl();
  if (url === null) {
    throw new ControlError('MISSING_ENV', `BETTER_COMPUTE_PKI says "database", and BETTER_COMPUTE_DATABASE_URL is not set`, {
      details: { reason: 'no-database' },
    });
  }
  const { openDatabaseSource } = await import('./database-source.ts');
  const source = openDatabaseSource(url, ports.io.now);
  try {
    return await work(source);
  } finally {
    await source.close();
  }
}

/** BETTER_COMPUTE_SECRET, else the secret that a development stack keeps in its state folder. */
export const secretOf = ({ settings }: Ports): string | undefined => settings.secret() ?? undefined;

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
