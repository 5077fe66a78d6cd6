/** The key bundle in the row of the database, for one command. Loaded only where BETTER_COMPUTE_PKI says so. */
import { createDatabase } from '../../../drizzle/client.ts';
import { createDatabaseBundleStore, insertBundle } from '../../../services/bundle-store.ts';
import type { BundleSource } from './source.ts';

/** Nothing is watched here, and only a watcher writes to the log. */
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

export function openDatabaseSource(url: string, now: () => number): BundleSource & { close(): Promise<void> } {
  const db = createDatabase(url, { max: 1, applicationName: 'better-compute pki' });
  return {
    ...createDatabaseBundleStore({ db, now, log: quiet }),
    name: 'the key bundle in the database',
    create: (text) => insertBundle(db, text, now()),
    close: () => db.close(),
  };
}
