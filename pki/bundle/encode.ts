/** From a bundle to its file: always the current form (KEY-023). */
import type { KeyObject } from 'node:crypto';
import {
  bundleFormat,
  bundleVersion,
  type CommandRootsDocument,
  documentDigest,
  type KeyDocument,
  type PublicDocument,
} from './document.ts';
import { commandRootKeyName, type KeyName, keyNames } from './keys.ts';
import { encodePem } from './pem.ts';
import { encodePlainKeys, encodeSealedKeys, type PrivateKeys } from './private-keys.ts';
import { sealPayload } from './seal.ts';
import type { PkiBundle, PublicBundle } from './types.ts';

export type EncodeBundleOptions =
  | { readonly secret: string; readonly plaintext?: never }
  | { readonly plaintext: true; readonly secret?: never };

/**
 * @param options the secret that seals it, or the explicit wish to write the private keys as PEM
 * @throws MISSING_ENV for a secret under 32 characters
 */
export function encodeBundle(bundle: PkiBundle, options: EncodeBundleOptions): string {
  const document = documentOf(bundle);
  const keys = privateKeysOf(bundle);
  const privateHalf =
    options.secret === undefined
      ? { privateKeys: encodePlainKeys(keys) }
      : {
          seal: sealPayload(
            { privateKeys: encodeSealedKeys(keys), publicSha256: documentDigest(document) },
            { secret: options.secret, trustDomain: bundle.trustDomain },
          ),
        };
  return `${JSON.stringify({ ...document, ...privateHalf }, null, 2)}\n`;
}

/** Lower-case hex of SHA-256 over every public field: equal exactly for equal public halves, whatever the seal (H-07). */
export const bundleDigest = (bundle: PkiBundle | PublicBundle): string => documentDigest(documentOf(bundle));

/** The public half as the file has it. */
export function documentOf(bundle: PkiBundle | PublicBundle): PublicDocument {
  const keys: Partial<Record<KeyName, KeyDocument>> = {};
  for (const name of keyNames) {
    const key = bundle[name];
    if (key !== undefined) keys[name] = keyDocument(key);
  }
  return {
    format: bundleFormat,
    version: bundleVersion,
    trustDomain: bundle.trustDomain,
    generation: bundle.generation,
    trustVersion: bundle.trustVersion,
    keys,
    ...(bundle.commandRoots.roots.length === 0 && bundle.commandRoots.signing === '' ? {} : { commandRoots: commandRootsDocument(bundle) }),
    republish: bundle.republish,
    ...(bundle.execTicketTimes === undefined ? {} : { execTicketTimes: bundle.execTicketTimes }),
  };
}

function keyDocument(key: NonNullable<PublicBundle[KeyName]>): KeyDocument {
  if ('certificates' in key)
    return { certificates: key.certificates.map((certificate) => encodePem('CERTIFICATE', certificate.der)), ...signerDocument(key) };
  if ('spki' in key) return { publicKey: encodePem('PUBLIC KEY', key.spki), ...signerDocument(key) };
  return { publicKey: key.publicKey };
}

const signerDocument = (key: { readonly signerReference?: string } | undefined): { signer?: string } =>
  key?.signerReference === undefined ? {} : { signer: key.signerReference };

function commandRootsDocument({ commandRoots: { roots, ...state }, commandRootsById }: PkiBundle | PublicBundle): CommandRootsDocument {
  return {
    ...state,
    roots: roots.map((root) => ({
      ...root,
      certificates: (commandRootsById.get(root.id)?.certificates ?? []).map((certificate) => encodePem('CERTIFICATE', certificate.der)),
      ...signerDocument(commandRootsById.get(root.id)),
    })),
  };
}

function privateKeysOf(bundle: PkiBundle): PrivateKeys {
  const keys = new Map<string, KeyObject>();
  for (const name of keyNames) {
    const key = bundle[name]?.privateKey;
    if (key !== undefined) keys.set(name, key);
  }
  for (const root of bundle.commandRootsById.values()) {
    if (root.privateKey !== undefined) keys.set(commandRootKeyName(root.id), root.privateKey);
  }
  return keys;
}
