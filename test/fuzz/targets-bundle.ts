/** The key bundle: its file, its public half alone, and what its seal holds. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleDigest, encodeBundle, openBundle, readPublicBundle } from '../../pki/bundle/index.ts';
import { sealPayload } from '../../pki/bundle/seal.ts';
import type { Target } from './engine.ts';
import { mutateBase64, mutateJson } from './mutate-text.ts';
import { bytesOf, mutatorsOf, secret, textOf, trustDomain, type World } from './world.ts';

const goldenBundles = (): Uint8Array[] => {
  const folder = join(dirname(fileURLToPath(import.meta.url)), '../golden/bundles');
  return readdirSync(folder).map((name) => readFileSync(join(folder, name)));
};

export function bundleTargets({ bundle }: World): Target[] {
  const maxBytes = 1024 * 1024 + 1;
  const plain = bytesOf(encodeBundle(bundle, { plaintext: true }));
  const json = mutatorsOf(maxBytes, mutateJson, mutateJson, mutateBase64);
  const { privateKeys: pems, ...publicHalf } = JSON.parse(textOf(plain)) as { privateKeys: Record<string, string> };
  const privateKeys = Object.fromEntries(Object.entries(pems).map(([name, pem]) => [name, pem.replace(/-----[A-Z ]+-----|\n/g, '')]));
  const seeds = [plain, ...goldenBundles()];
  return [
    { name: 'bundle', maxBytes, seeds, mutators: json, run: (input) => openBundle(textOf(input), { secret, allowUnauthenticated: true }) },
    { name: 'bundle-public', maxBytes, seeds, mutators: json, run: (input) => readPublicBundle(textOf(input)) },
    {
      name: 'bundle-sealed-half',
      maxBytes: 64 * 1024,
      seeds: [bytesOf(JSON.stringify({ privateKeys, publicSha256: bundleDigest(bundle) }))],
      mutators: mutatorsOf(64 * 1024, mutateJson),
      run: (input) =>
        openBundle(JSON.stringify({ ...publicHalf, seal: sealPayload(parsedOr(input), { secret, trustDomain }) }), { secret }),
    },
  ];
}

/** Whatever was made of the payload, as the sealer takes it. */
const parsedOr = (input: Uint8Array): never => {
  try {
    return JSON.parse(textOf(input)) as never;
  } catch {
    return textOf(input) as never;
  }
};
