/** Reading and changing the running key bundle, for every rotation whose keys are in it. */
import type { Database } from '../../drizzle/client.ts';
import * as bundles from '../../pki/bundle/index.ts';
import { assertFresh } from '../../services/freshness.ts';

/** The bundle that this process runs, and the way to write a next one that it then runs at once. */
export interface RunningBundle {
  /** The newest stored bundle; what it finds, this process runs from then on. */
  refresh(): Promise<bundles.PkiBundle>;
  /** Compare-and-swap on the store; what was written, this process runs from then on. */
  update(change: bundles.BundleChange): Promise<bundles.PkiBundle>;
}

type Take = (bundle: bundles.PkiBundle, at: number) => bundles.BundleStep | Promise<bundles.BundleStep>;

export interface BundleSteps {
  read(): Promise<bundles.PkiBundle>;
  /** Throws STALE_BUNDLE as long as the stored bundle or the database is older than the deployment (H-07). */
  assertFresh(): Promise<void>;
  /** Steps carry the time of `clock`: the next one is judged from it, whichever hosts take the two. */
  take(take: Take): Promise<bundles.PkiBundle>;
}

export interface BundleStepsOptions {
  readonly db: Database;
  readonly running: RunningBundle;
  readonly clock: () => Promise<number>;
}

export function createBundleSteps({ db, running, clock }: BundleStepsOptions): BundleSteps {
  const assertFreshBundle = (bundle: bundles.PkiBundle): Promise<void> =>
    assertFresh(db, { generation: bundle.generation, digest: bundles.bundleDigest(bundle) });
  return {
    read: () => running.refresh(),
    assertFresh: async () => assertFreshBundle(await running.refresh()),
    /** H-07: an older bundle is never written on, however good its seal. */
    take: (take) =>
      running.update(async (before) => {
        await assertFreshBundle(before);
        const taken = await take(before, await clock());
        return taken.changed ? taken.bundle : 'unchanged';
      }),
  };
}
