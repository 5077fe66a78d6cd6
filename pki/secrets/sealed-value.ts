/**
 * A secret of the deployment at rest (SEC-028): sealed under a key that is derived from the deployment's secret.
 *
 *   key    = HKDF-SHA256(secret, salt, info)
 *   sealed = salt (32) || iv (12) || AES-256-GCM ciphertext || tag (16)
 *   AAD    = path 0x00 version
 *
 * Whoever can write where it is kept but lacks the secret cannot read a value, make one, or pass one off under another path or version.
 * He can take the newest version away. Its own info text keeps this seal apart from the others under the same secret.
 */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { maxSecretBytes } from '../../domain/secrets/reference.ts';
import { assertSealingSecret } from '../bundle/seal.ts';
import { gcmSizes, hkdfSha256, openGcm, sealGcm } from '../jose/index.ts';

export interface SecretSeal {
  readonly secret: string;
  readonly path: string;
  readonly version: number;
}

const info = 'better-compute secrets v1';
const saltBytes = 32;
const leastBytes = saltBytes + gcmSizes.iv + gcmSizes.tag;

const boxOf = ({ secret, path, version }: SecretSeal, salt: Uint8Array, iv: Uint8Array) => ({
  key: hkdfSha256({ ikm: Buffer.from(secret, 'utf8'), salt, info, size: gcmSizes.key }),
  iv,
  aad: Buffer.from(`${path}\0${version}`, 'utf8'),
});

/** @throws MISSING_ENV for a deployment secret under 32 characters; INVALID_INPUT for an empty value, or one above the bound */
export function sealSecretValue(value: Uint8Array, seal: SecretSeal): Uint8Array {
  assertSealingSecret(seal.secret);
  if (value.length === 0 || value.length > maxSecretBytes) {
    throw new ControlError('INVALID_INPUT', `a secret has 1 to ${maxSecretBytes} bytes, not ${value.length}`, {
      details: { reason: 'secret-size', size: value.length },
    });
  }
  const [salt, iv] = [randomBytes(saltBytes), randomBytes(gcmSizes.iv)];
  const { ciphertext, tag } = sealGcm(boxOf(seal, salt, iv), value);
  return Buffer.concat([salt, iv, ciphertext, tag]);
}

/** @throws INVALID_CONFIG (secret-seal) when the deployment's secret is another, or a byte, the path or the version was changed */
export function openSecretValue(sealed: Uint8Array, seal: SecretSeal): Uint8Array {
  const bytes = Buffer.from(sealed);
  const refuse = (cause?: unknown): never => {
    throw new ControlError(
      'INVALID_CONFIG',
      `version ${seal.version} of secret ${seal.path} does not open: BETTER_COMPUTE_SECRET is not the one it was sealed with, or the row was changed; set the secret anew`,
      { details: { reason: 'secret-seal', path: seal.path }, ...(cause === undefined ? {} : { cause }) },
    );
  };
  if (bytes.length <= leastBytes) return refuse();
  const salt = bytes.subarray(0, saltBytes);
  const iv = bytes.subarray(saltBytes, saltBytes + gcmSizes.iv);
  const [ciphertext, tag] = [bytes.subarray(saltBytes + gcmSizes.iv, -gcmSizes.tag), bytes.subarray(-gcmSizes.tag)];
  try {
    return openGcm({ ...boxOf(seal, salt, iv), ciphertext, tag });
  } catch (cause) {
    return refuse(cause);
  }
}
