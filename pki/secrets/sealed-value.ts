/**
 * A secret of the deployment at rest (SEC-028): sealed under a key that is derived from the deployment's secret.
 *
 * A sealed row (pki/bundle/sealed-row.ts) whose AAD is path 0x00 version.
 *
 * Whoever can write where it is kept but lacks the secret cannot read a value, make one, or pass one off under another path or version.
 * He can take the newest version away. Its own info text keeps this seal apart from the others under the same secret.
 */
import { ControlError } from '../../domain/errors.ts';
import { maxSecretBytes } from '../../domain/secrets/reference.ts';
import { openRow, sealRow } from '../bundle/sealed-row.ts';

export interface SecretSeal {
  readonly secret: string;
  readonly path: string;
  readonly version: number;
}

const rowOf = ({ secret, path, version }: SecretSeal) => ({ secret, info: 'better-compute secrets v1', aad: `${path}\0${version}` });

/** @throws MISSING_ENV for a deployment secret under 32 characters; INVALID_INPUT for an empty value, or one above the bound */
export function sealSecretValue(value: Uint8Array, seal: SecretSeal): Uint8Array {
  if (value.length === 0 || value.length > maxSecretBytes) {
    throw new ControlError('INVALID_INPUT', `a secret has 1 to ${maxSecretBytes} bytes, not ${value.length}`, {
      details: { reason: 'secret-size', size: value.length },
    });
  }
  return sealRow(value, rowOf(seal));
}

/** @throws INVALID_CONFIG (secret-seal) when the deployment's secret is another, or a byte, the path or the version was changed */
export function openSecretValue(sealed: Uint8Array, seal: SecretSeal): Uint8Array {
  try {
    return openRow(sealed, rowOf(seal));
  } catch (cause) {
    throw new ControlError(
      'INVALID_CONFIG',
      `version ${seal.version} of secret ${seal.path} does not open: BETTER_COMPUTE_SECRET is not the one it was sealed with, or the row was changed; set the secret anew`,
      { details: { reason: 'secret-seal', path: seal.path }, cause },
    );
  }
}
