/**
 * What the deployment keeps in its database and nobody else may read: sealed under a key that is derived from the deployment's secret.
 *
 *   key    = HKDF-SHA256(secret, salt, info)
 *   sealed = salt (32) || iv (12) || AES-256-GCM ciphertext || tag (16)
 *
 * `info` keeps one kind of row apart from every other under the same secret, `aad` one row from the others of its kind.
 */
import { randomBytes } from 'node:crypto';
import { gcmSizes, hkdfSha256, openGcm, sealGcm } from '../jose/index.ts';
import { assertSealingSecret } from './seal.ts';

export interface RowSeal {
  readonly secret: string;
  readonly info: string;
  readonly aad: string;
}

const saltBytes = 32;
const leastBytes = saltBytes + gcmSizes.iv + gcmSizes.tag;

const boxOf = ({ secret, info, aad }: RowSeal, salt: Uint8Array, iv: Uint8Array) => ({
  key: hkdfSha256({ ikm: Buffer.from(secret, 'utf8'), salt, info, size: gcmSizes.key }),
  iv,
  aad: Buffer.from(aad, 'utf8'),
});

/** @throws MISSING_ENV for a secret under 32 characters */
export function sealRow(value: Uint8Array, seal: RowSeal): Uint8Array {
  assertSealingSecret(seal.secret);
  const [salt, iv] = [randomBytes(saltBytes), randomBytes(gcmSizes.iv)];
  const { ciphertext, tag } = sealGcm(boxOf(seal, salt, iv), value);
  return Buffer.concat([salt, iv, ciphertext, tag]);
}

/** @throws when the secret, the info or the aad is another, or a byte was changed: an error of no type, for the caller to name */
export function openRow(sealed: Uint8Array, seal: RowSeal): Uint8Array {
  const bytes = Buffer.from(sealed);
  if (bytes.length < leastBytes) throw new RangeError(`a sealed row has at least ${leastBytes} bytes, not ${bytes.length}`);
  const salt = bytes.subarray(0, saltBytes);
  const iv = bytes.subarray(saltBytes, saltBytes + gcmSizes.iv);
  const [ciphertext, tag] = [bytes.subarray(saltBytes + gcmSizes.iv, -gcmSizes.tag), bytes.subarray(-gcmSizes.tag)];
  return openGcm({ ...boxOf(seal, salt, iv), ciphertext, tag });
}
