import { sign, type KeyObject } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { spkiOf } from './spki.ts';
import type { Signer } from './types.ts';

/**
 * A signer over a P-256 private key in this process. It signs at once: one signature takes some 25 µs, less than a hop to the
 * thread pool and back. INVALID_INPUT for any other key.
 */
export const signerFromPrivateKey = (key: KeyObject): Signer => {
  if (key.type !== 'private') throw new ControlError('INVALID_INPUT', `a private key is needed to sign, not a ${key.type} key`, { details: { reason: 'not-private' } });
  const spki = spkiOf(key);
  const options = { key, dsaEncoding: 'ieee-p1363' } as const;
  return Object.freeze({ spki, sign: async (input: Uint8Array): Promise<Uint8Array> => sign('sha256', input, options) });
};
