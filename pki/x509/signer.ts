import { type KeyObject, sign } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { spkiOf } from './spki.ts';
import type { Signer } from './types.ts';

/** Up to here this thread signs by itself: a signature takes some 30 µs, a hop to the thread pool and back takes longer. */
const aloneUpTo = 4;

interface Waiting {
  readonly input: Uint8Array;
  readonly resolve: (signature: Uint8Array) => void;
  readonly reject: (error: Error) => void;
}

/**
 * A signer over a P-256 private key in this process. What is asked for in one turn is signed together: a few at once and here, many
 * on the thread pool, so that a mass of certificates keeps every core busy while this thread writes the next ones. INVALID_INPUT
 * for any other key.
 */
export const signerFromPrivateKey = (key: KeyObject): Signer => {
  if (key.type !== 'private')
    throw new ControlError('INVALID_INPUT', `a private key is needed to sign, not a ${key.type} key`, {
      details: { reason: 'not-private' },
    });
  const spki = spkiOf(key);
  const options = { key, dsaEncoding: 'ieee-p1363' } as const;
  let waiting: Waiting[] = [];
  const flush = (): void => {
    const turn = waiting;
    waiting = [];
    if (turn.length <= aloneUpTo) for (const { input, resolve } of turn) resolve(sign('sha256', input, options));
    else
      for (const one of turn)
        sign('sha256', one.input, options, (error, signature) => (error === null ? one.resolve(signature) : one.reject(error)));
  };
  return Object.freeze({
    spki,
    sign: (input: Uint8Array): Promise<Uint8Array> =>
      new Promise((resolve, reject) => {
        if (waiting.push({ input, resolve, reject }) === 1) queueMicrotask(flush);
      }),
  });
};
