/** The key bundle in a row of the database, for deployments without a shared file: compare-and-swap by revision, watched by polling. */
import { ControlError } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { type Executor, instant } from '../drizzle/client.ts';
import type { BundleStore } from '../pki/bundle/index.ts';
import type { ServiceLog } from './log.ts';

export interface DatabaseBundleStoreOptions {
  readonly db: Executor;
  readonly now: () => number;
  readonly log: ServiceLog;
  /** How often a watcher looks; default 2 s. */
  readonly pollMs?: number;
}

const read = { name: 'bundle-read', text: 'select revision, document as text from pki_bundle where id = 1' };
const replace = {
  name: 'bundle-replace',
  text: 'update pki_bundle set revision = revision + 1, document = $1, updated_at = $3 where id = 1 and revision = $2 returning revision',
};
const insert = {
  name: 'bundle-insert',
  text: 'insert into pki_bundle (id, revision, document, updated_at) values (1, 1, $1, $2) on conflict (id) do nothing returning revision',
};

/** Puts the first bundle in. @throws INVALID_STATE when there is one already */
export async function insertBundle(db: Executor, text: string, now: number): Promise<void> {
  if ((await db.query(insert, [text, instant(now)])).length > 0) return;
  throw new ControlError('INVALID_STATE', 'the database holds a key bundle already', { details: { reason: 'bundle-exists' } });
}

export function createDatabaseBundleStore({ db, now, log, pollMs = 2 * second }: DatabaseBundleStoreOptions): BundleStore {
  const revisionNow = async (): Promise<string | undefined> => {
    const [row] = await db.query<{ revision: number }>(read);
    return row === undefined ? undefined : String(row.revision);
  };
  return {
    async read() {
      const [row] = await db.query<{ revision: number; text: string }>(read);
      if (row === undefined) throw new ControlError('NOT_FOUND', 'the database holds no key bundle', { details: { reason: 'no-bundle' } });
      return { text: row.text, revision: String(row.revision) };
    },
    async replace(text, expectedRevision) {
      const [row] = await db.query<{ revision: number }>(replace, [text, expectedRevision, instant(now())]);
      if (row === undefined) {
        throw new ControlError('CONFLICT', `the stored key bundle is no longer revision ${expectedRevision}`, {
          details: { reason: 'bundle-changed' },
        });
      }
      return { revision: String(row.revision) };
    },
    watch(onChange) {
      let known: string | undefined;
      let first = true;
      const look = async (): Promise<void> => {
        const revision = await revisionNow();
        if (!first && revision !== known) onChange();
        known = revision;
        first = false;
      };
      const report = (error: unknown): void => log.warn({ err: error }, 'the stored key bundle could not be looked at; trying again');
      void look().catch(report);
      const timer = setInterval(() => void look().catch(report), pollMs);
      return { close: () => clearInterval(timer) };
    },
  };
}
