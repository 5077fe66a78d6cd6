/** The private half: name → key, from PEM in a plaintext bundle or from base64 PKCS#8 inside a seal. */
import type { KeyObject } from 'node:crypto';
import { readPrivateKey } from '../x509/index.ts';
import { parseBase64 } from './canonical.ts';
import { encodePem, parsePem } from './pem.ts';
import { Problems } from './problems.ts';

export type PrivateKeys = ReadonlyMap<string, KeyObject>;

const exportDer = (key: KeyObject): Uint8Array => key.export({ type: 'pkcs8', format: 'der' });

export const encodePlainKeys = (keys: PrivateKeys): Record<string, string> =>
  Object.fromEntries([...keys].map(([name, key]) => [name, encodePem('PRIVATE KEY', exportDer(key))]));

export const encodeSealedKeys = (keys: PrivateKeys): Record<string, string> =>
  Object.fromEntries([...keys].map(([name, key]) => [name, Buffer.from(exportDer(key)).toString('base64')]));

/** @throws INVALID_CONFIG (bundle-invalid) naming each entry that is no PEM private key */
export const parsePlainKeys = (value: unknown): PrivateKeys => parseKeys(value, (text) => parsePem('PRIVATE KEY', text));

/** @throws INVALID_CONFIG (bundle-invalid) */
export const parseSealedKeys = (value: unknown): PrivateKeys => parseKeys(value, parseBase64);

function parseKeys(value: unknown, decode: (text: string) => Uint8Array | null): PrivateKeys {
  const problems = new Problems();
  const entries = typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
  if (entries.length === 0) problems.add('privateKeys', 'must be an object with at least one key');
  const keys = new Map<string, KeyObject>();
  for (const [name, text] of entries) {
    const key = readKey(typeof text === 'string' ? decode(text) : null);
    if (key === null) problems.add(`privateKeys.${name}`, 'is not a PKCS#8 private key');
    else keys.set(name, key);
  }
  problems.throwIfAny();
  return keys;
}

function readKey(der: Uint8Array | null): KeyObject | null {
  if (der === null) return null;
  try {
    return readPrivateKey(der);
  } catch {
    // Never the cause: an OpenSSL message may quote what it read.
    return null;
  }
}
