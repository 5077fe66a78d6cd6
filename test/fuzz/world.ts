/** A deployment to make good inputs of, and what every table of targets needs. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { createWorkerKey, type WorkerKey } from '../../pki/envelope/index.ts';
import { createSerial, issueLeaf, signerFromPrivateKey } from '../../pki/x509/index.ts';
import { byteMutators, growTo, type Mutator, onStructure } from './mutate-bytes.ts';

export const now = Date.UTC(2026, 0, 15, 12);
export const trustDomain = 'compute.example.com';
export const secret = 'a secret of thirty-two characters at least';

export const textOf = (input: Uint8Array): string => Buffer.from(input).toString('utf8');
export const bytesOf = (value: string): Uint8Array => Buffer.from(value, 'utf8');

/** Structure first, then bytes, and now and then the whole bound. */
export const mutatorsOf = (maxBytes: number, ...own: Mutator[]): readonly Mutator[] => [
  ...own.flatMap((one) => Array.from({ length: 12 }, () => onStructure(one))),
  ...byteMutators,
  (input, random, other) => (random.chance(16) ? growTo(maxBytes)(input, random, other) : input),
];

export interface World {
  readonly bundle: PkiBundle;
  readonly worker: WorkerKey;
  readonly node: KeyObject;
  readonly leaf: Uint8Array;
}

export async function createWorld(): Promise<World> {
  const bundle = await createBundle({ trustDomain, now });
  const root = bundle.commandSigning;
  if (root === undefined) throw new Error('a new bundle signs commands');
  const ca = { certificate: root.certificate.der, signer: root.signer() };
  const worker = await createWorkerKey({ root: ca, now, lifetimeMs: 3_600_000, serial: createSerial() });
  const node = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const nodeCa = { certificate: bundle.nodeCa.certificate.der, signer: bundle.nodeCa.signer() };
  const identity = { trustDomain, siteId: 'site', nodeId: 'node-1' };
  const { der } = await issueLeaf({
    ca: nodeCa,
    profile: 'node',
    spki: signerFromPrivateKey(node).spki,
    identity,
    now,
    sans: { uris: [] },
  });
  return { bundle, worker, node, leaf: der };
}
