/** OpenSSH public key lines of the SSH authorities (KEY-005, KEY-040; RFC 4253 6.6, RFC 8709, RFC 5656). */
import { createPublicKey, type JsonWebKey, type KeyObject } from 'node:crypto';

/** `ssh-ed25519 <base64> <comment>` of an Ed25519 key. */
export function encodeSshPublicKey(key: KeyObject, comment: string): string {
  const { x } = key.export({ format: 'jwk' });
  const blob = Buffer.concat([lengthPrefixed(Buffer.from('ssh-ed25519')), lengthPrefixed(Buffer.from(x ?? '', 'base64url'))]);
  return `ssh-ed25519 ${blob.toString('base64')} ${comment}`;
}

const lengthPrefixed = (bytes: Uint8Array): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
};

/**
 * Reads one line of an Ed25519 or ECDSA P-256 key. A second line would be a second trusted authority, so any control
 * character makes the text no key.
 *
 * @returns null when the text is not exactly one such line
 */
export function parseSshPublicKey(line: string): KeyObject | null {
  if (/[\u0000-\u001f\u007f\u0085\u2028\u2029]/.test(line)) return null;
  const [algorithm = '', encoded = ''] = line.split(' ');
  const blob = Buffer.from(encoded, 'base64');
  if (blob.toString('base64') !== encoded || !line.startsWith(`${algorithm} ${encoded}`)) return null;
  const parts = splitBlob(blob);
  if (parts === null || parts[0]?.toString('latin1') !== algorithm) return null;
  return keyOf(algorithm, parts);
}

function splitBlob(blob: Buffer): Buffer[] | null {
  const parts: Buffer[] = [];
  let at = 0;
  while (at < blob.length) {
    if (at + 4 > blob.length) return null;
    const end = at + 4 + blob.readUInt32BE(at);
    if (end > blob.length) return null;
    parts.push(blob.subarray(at + 4, end));
    at = end;
  }
  return parts;
}

function keyOf(algorithm: string, parts: readonly Buffer[]): KeyObject | null {
  const read = Object.hasOwn(algorithms, algorithm) ? algorithms[algorithm] : undefined;
  const jwk = read?.(parts) ?? null;
  try {
    return jwk === null ? null : createPublicKey({ format: 'jwk', key: jwk });
  } catch {
    // A point that is not on the curve.
    return null;
  }
}

/** Key type → its parts as a JWK; null when they are not of its shape. */
const algorithms: Readonly<Record<string, (parts: readonly Buffer[]) => JsonWebKey | null>> = Object.freeze({
  'ssh-ed25519': ([, key, ...rest]) =>
    key?.length === 32 && rest.length === 0 ? { kty: 'OKP', crv: 'Ed25519', x: key.toString('base64url') } : null,
  'ecdsa-sha2-nistp256': ([, curve, point, ...rest]) => {
    if (curve?.toString('latin1') !== 'nistp256' || rest.length > 0) return null;
    // Uncompressed only: 04, x, y.
    if (point?.length !== 65 || point[0] !== 4) return null;
    return { kty: 'EC', crv: 'P-256', x: point.subarray(1, 33).toString('base64url'), y: point.subarray(33).toString('base64url') };
  },
});
