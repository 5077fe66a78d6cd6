/**
 * Opening a bundle: parse, unseal, check the public half, match every private half to its public one (KEY-021, KEY-041 to
 * KEY-044). What comes out is a PkiBundle; below this function the unchecked form does not exist.
 */
import { ControlError } from '../../domain/errors.ts';
import { type ParsedDocument, parseDocument } from './document.ts';
import { loadKeys } from './load-keys.ts';
import { type PrivateKeys, parsePlainKeys, parseSealedKeys } from './private-keys.ts';
import { invalidBundle, restoreIt } from './problems.ts';
import { publicOf } from './public.ts';
import { parseSeal, unseal } from './seal.ts';
import type { PkiBundle, SealForm } from './types.ts';

export interface OpenBundleOptions {
  /** The environment's secret; empty counts as not set. */
  readonly secret?: string;
  /** BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED=1, or a command that is about to vouch for the bundle. */
  readonly allowUnauthenticated?: boolean;
}

export interface Authentication {
  readonly seal: SealForm;
  /** The public half matches a current seal under this secret (KEY-044). */
  readonly authenticated: boolean;
  /** Former seal, or no seal although there is a secret (KEY-043): nothing vouches for the pins. */
  readonly unauthenticated: boolean;
}

/**
 * @throws INVALID_CONFIG when the file is no bundle, the seal does not open, the public half changed, a private half does
 *   not belong to its public half, or nothing vouches for the bundle and it was not allowed; MISSING_ENV when it is sealed
 *   and there is no secret
 */
export function openBundle(text: string, options: OpenBundleOptions = {}): PkiBundle {
  const parsed = parseDocument(text);
  const { privateKeys, ...verdict } = authenticate(parsed, options.secret);
  if (verdict.unauthenticated && options.allowUnauthenticated !== true) throw unauthenticated(verdict.seal);
  return loadKeys({ publicBundle: publicOf(parsed), privateKeys, verdict });
}

/**
 * Says what vouches for a bundle, without looking at its keys.
 *
 * @throws as openBundle, but never for a bundle that is merely unauthenticated
 */
export function authenticateBundle(text: string, secret: string | undefined): Authentication {
  const { privateKeys: _unused, ...verdict } = authenticate(parseDocument(text), secret);
  return verdict;
}

function authenticate(parsed: ParsedDocument, secret: string | undefined): Authentication & { privateKeys: PrivateKeys } {
  const hasSecret = secret !== undefined && secret !== '';
  if (parsed.privateKeys !== undefined) {
    return { seal: 'plaintext', authenticated: false, unauthenticated: hasSecret, privateKeys: parsePlainKeys(parsed.privateKeys) };
  }
  if (!hasSecret) {
    throw new ControlError('MISSING_ENV', 'the key bundle is sealed and BETTER_COMPUTE_SECRET is not set', {
      details: { reason: 'secret-missing' },
    });
  }
  const seal = parseSeal(parsed.seal);
  const payload = unseal(seal, { secret, trustDomain: parsed.document.trustDomain });
  const privateKeys = parseSealedKeys(payload.privateKeys);
  if (seal.form === 'former') return { seal: 'former', authenticated: false, unauthenticated: true, privateKeys };
  if (payload.publicSha256 !== parsed.digest) {
    throw invalidBundle(`the public half of the key bundle was changed without the secret: ${restoreIt}`, {
      reason: 'public-half-changed',
    });
  }
  return { seal: 'current', authenticated: true, unauthenticated: false, privateKeys };
}

const why: Readonly<Record<SealForm, string>> = Object.freeze({
  current: 'it is sealed',
  former: 'it is sealed in the former form, which covers no certificate and no pin',
  plaintext: 'it is not sealed although BETTER_COMPUTE_SECRET is set',
});

const unauthenticated = (seal: SealForm): ControlError =>
  new ControlError('INVALID_CONFIG', `nothing vouches for the key bundle: ${why[seal]}`, {
    details: { reason: 'unauthenticated', seal, hint: 'compare its pins and seal it: better-compute pki reseal' },
  });
