import { openBundle, type PkiBundle } from '../pki/bundle/index.ts';
import { createBundleFileStore } from '../runtime/bundle-file-store.ts';

/** Where a deployment keeps its bundle unless it says otherwise (KEY-028). */
export const defaultBundlePath = '.better-compute/pki.json';

/**
 * Reads and opens the key bundle of a deployment with the secret of its environment (KEY-003, KEY-027, KEY-041).
 *
 * @param path usually `env.BETTER_COMPUTE_PKI ?? defaultBundlePath`
 * @throws NOT_FOUND without a file; INVALID_CONFIG when it is no bundle, was changed, or nothing vouches for it; MISSING_ENV when it
 *   is sealed and BETTER_COMPUTE_SECRET is not set
 */
export async function loadPkiBundle(path: string, env: NodeJS.ProcessEnv): Promise<PkiBundle> {
  const { text } = await createBundleFileStore(path).read();
  const secret = env['BETTER_COMPUTE_SECRET'];
  return openBundle(text, {
    ...(secret === undefined || secret === '' ? {} : { secret }),
    allowUnauthenticated: env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'] === '1',
  });
}
