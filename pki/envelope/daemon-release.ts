/**
 * Releases of bcd: signed by a release key that machines pin in their own configuration, so that neither a command worker nor the gateway
 * nor who serves the files can give a machine another program (KIND-009, SKEW-016). No key of the bundle is a release key.
 */

import { type Release, releaseProblem } from '../../domain/commands/release.ts';
import { ControlError } from '../../domain/errors.ts';
import { DaemonReleaseSchema, decodeMessage, encodeMessage, type Signature } from '../../proto/index.ts';
import { kidOf, type Signer } from '../x509/index.ts';
import { assertSigned, badSignature, short, signEnvelope, verifyEnvelope } from './envelope.ts';

export interface SignedRelease {
  /** An encoded DaemonRelease. */
  readonly release: Uint8Array;
  readonly signature: Signature;
}

/** @throws INVALID_INPUT naming the field that is wrong */
export async function signDaemonRelease(signer: Signer, release: Release & { readonly releasedAtMs: number }): Promise<SignedRelease> {
  const problem = releaseProblem(release);
  if (problem !== null) throw new ControlError('INVALID_INPUT', `this is no release: ${problem}`, { details: { reason: 'release' } });
  const { sha256, bytes, releasedAtMs, ...rest } = release;
  const body = encodeMessage(
    DaemonReleaseSchema,
    { ...rest, sha256: Buffer.from(sha256, 'hex'), bytes: BigInt(bytes), releasedAtMs: BigInt(releasedAtMs) },
    'daemonRelease',
  );
  return { release: body, signature: await signEnvelope(signer, 'daemon-release', [body]) };
}

/**
 * What one of `keys` signed, over the bytes as they came.
 *
 * @param keys SPKI of the pinned release keys
 * @throws BAD_SIGNATURE (`unsigned`, `unknown-release-key`, and those of an envelope); MALFORMED when the signed bytes are no release
 */
export function openDaemonRelease(
  { release, signature }: { readonly release: Uint8Array; readonly signature?: Signature | undefined },
  keys: readonly Uint8Array[],
): Release {
  const { kid } = assertSigned(signature, 'daemon-release');
  const key = keys.find((one) => kidOf(one) === kid);
  if (key === undefined)
    throw badSignature(
      'unknown-release-key',
      `the release is signed by ${short(kid)}, which is none of the ${keys.length} pinned release keys`,
    );
  verifyEnvelope({ signature, purpose: 'daemon-release', parts: [release], key });
  const { version, sha256, bytes, platform } = decodeMessage(DaemonReleaseSchema, release, 'daemonRelease');
  const read = { version, sha256: Buffer.from(sha256).toString('hex'), bytes: Number(bytes), platform };
  const problem = releaseProblem(read);
  if (problem !== null)
    throw new ControlError('MALFORMED', `the signed release cannot be used: ${problem}`, { details: { reason: 'release' } });
  return read;
}
