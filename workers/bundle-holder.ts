/**
 * The key bundle that a process runs: read from its store, taken again as soon as the store changes, written through
 * compare-and-swap. `add`, `switch` and `drop` reach a running process this way, without a restart.
 *
 * A bundle that cannot be read or opened is reported and the one at hand is kept: half a copy of a file must not stop a
 * worker. An older one is taken like any other, and then refused by the freshness check before it signs anything (H-07).
 */

import type { RunningBundle } from '../activities/adapters/bundle-steps.ts';
import {
  type BundleChange,
  type BundleStore,
  bundleDigest,
  openBundle,
  type PkiBundle,
  updateBundle,
  withExternalSigners,
} from '../pki/bundle/index.ts';
import type { ExternalSigners } from '../pki/signers/index.ts';
import type { ServiceLog } from '../services/log.ts';

export interface BundleHolderOptions {
  readonly store: BundleStore;
  readonly secret: string | undefined;
  /** For the keys that the bundle only refers to. */
  readonly signers: ExternalSigners;
  readonly log: ServiceLog;
}

export interface BundleHolder extends RunningBundle {
  current(): PkiBundle;
  onChange(listener: (bundle: PkiBundle) => void): void;
  close(): void;
}

/** @throws what the store and openBundle throw: a process does not start without its bundle */
export async function holdBundle({ store, secret, signers, log }: BundleHolderOptions): Promise<BundleHolder> {
  const listeners: ((bundle: PkiBundle) => void)[] = [];
  const open = (text: string): PkiBundle => withExternalSigners(openBundle(text, secret === undefined ? {} : { secret }), signers);
  const first = await store.read();
  let held = { bundle: open(first.text), revision: first.revision };

  const take = (bundle: PkiBundle, revision: string): PkiBundle => {
    if (revision === held.revision) return held.bundle;
    held = { bundle, revision };
    log.info({ generation: bundle.generation, bundleDigest: bundleDigest(bundle) }, 'running another key bundle');
    for (const listener of listeners) listener(bundle);
    return bundle;
  };
  // What was taken while a read was on its way may be newer than what it brings: then it is read again.
  const refresh = async (): Promise<PkiBundle> => {
    for (;;) {
      const before = held;
      const stored = await store.read();
      if (stored.revision === held.revision) return held.bundle;
      if (held === before) return take(open(stored.text), stored.revision);
    }
  };
  const watcher = store.watch(() => {
    refresh().catch((error: unknown) => log.error({ err: error }, 'the changed key bundle cannot be used; going on with the one at hand'));
  });
  return {
    current: () => held.bundle,
    refresh,
    update: async (change: BundleChange) => {
      const before = held;
      const updated = await updateBundle(store, secret, (stored) => change(withExternalSigners(stored, signers)));
      if (updated.revision === held.revision) return held.bundle;
      const bundle = withExternalSigners(updated.bundle, signers);
      if (held === before) return take(bundle, updated.revision);
      await refresh();
      return bundle;
    },
    onChange: (listener) => void listeners.push(listener),
    close: () => watcher.close(),
  };
}
