/** The current identity of a running daemon, and the one way to change it: durable first, current then. */
import { type StoredIdentity, saveIdentity } from './identity.ts';

export interface IdentityStore {
  readonly current: StoredIdentity;
  /** Changes run one after another, each from what the one before left; current changes once the file has. */
  update(change: (current: StoredIdentity) => StoredIdentity): Promise<StoredIdentity>;
}

/** @param save makes it durable; a simulated fleet keeps it in memory */
export function createIdentityStore(initial: StoredIdentity, save: (next: StoredIdentity) => Promise<void>): IdentityStore {
  let current = initial;
  let work: Promise<unknown> = Promise.resolve();
  return {
    get current() {
      return current;
    },
    update(change) {
      const done = work.then(async () => {
        const next = change(current);
        await save(next);
        current = next;
        return next;
      });
      work = done.catch(() => undefined);
      return done;
    },
  };
}

export const identityFileStore = (folder: string, initial: StoredIdentity): IdentityStore =>
  createIdentityStore(initial, (next) => saveIdentity(folder, next));
