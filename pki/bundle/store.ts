/**
 * Where a key bundle is kept: a port. The file store is runtime/bundle-file-store.ts, the PostgreSQL row
 * services/bundle-store.ts. Every write is a compare-and-swap on the revision that was read, so two operators on two
 * copies never lose each other's root (C16, C18).
 */
import { ControlError } from '../../domain/errors.ts';
import { encodeBundle } from './encode.ts';
import { openBundle } from './open.ts';
import type { PkiBundle } from './types.ts';

export interface StoredBundle {
  readonly text: string;
  /** Opaque; equal for equal content. */
  readonly revision: string;
}

export interface BundleStore {
  /** @throws NOT_FOUND when there is no bundle */
  read(): Promise<StoredBundle>;
  /** @throws CONFLICT when the stored revision is not `expectedRevision` */
  replace(text: string, expectedRevision: string): Promise<{ readonly revision: string }>;
  /** Calls back after the content changed from what this store last read or wrote. */
  watch(onChange: () => void): { close(): void };
}

/** The next content, or the word that nothing changes. */
export type BundleChange = (bundle: PkiBundle) => Promise<PkiBundle | 'unchanged'>;

export interface UpdatedBundle {
  readonly bundle: PkiBundle;
  readonly changed: boolean;
  readonly revision: string;
}

const attempts = 5;

/** The next write-back of a bundle: its generation goes up by one, and it is sealed in the current form when there is a secret. */
export const nextGeneration = (bundle: PkiBundle): PkiBundle => ({ ...bundle, generation: bundle.generation + 1 });

/**
 * Reads, changes and writes a bundle back. The change runs again on the newer content when another writer was faster.
 *
 * @param secret seals the answer; undefined keeps an unsealed bundle unsealed (KEY-023, CLI-030)
 * @throws what `openBundle`, `encodeBundle` and `change` throw; CONFLICT when other writers were faster five times
 */
export async function updateBundle(
  store: Pick<BundleStore, 'read' | 'replace'>,
  secret: string | undefined,
  change: BundleChange,
): Promise<UpdatedBundle> {
  let lost: unknown;
  for (let attempt = 0; attempt < attempts; attempt++) {
    const stored = await store.read();
    // Strictly: only `pki reseal` may vouch for a bundle that nothing vouches for (A-PKI-10).
    const before = openBundle(stored.text, secret === undefined ? {} : { secret });
    const after = await change(before);
    if (after === 'unchanged') return { bundle: before, changed: false, revision: stored.revision };
    const text = encodeBundle(nextGeneration(after), secret === undefined ? { plaintext: true } : { secret });
    try {
      const { revision } = await store.replace(text, stored.revision);
      return { bundle: openBundle(text, secret === undefined ? {} : { secret }), changed: true, revision };
    } catch (error) {
      if (!(error instanceof ControlError) || error.code !== 'CONFLICT') throw error;
      lost = error;
    }
  }
  throw new ControlError('CONFLICT', `the key bundle changed under ${attempts} attempts to write it`, {
    cause: lost,
    details: { reason: 'bundle-busy' },
  });
}
