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
 * A signer over a P-256 private key in this process. Of what is asked for in one turn, a few are signed together and here; with the first
 * beyond them all go to the thread pool, each as it is asked for, so that a mass of certificates keeps every core busy while this
 * thread writes the next ones. INVALID_INPUT for any other key.
 */
export const signerFromPrivateKey = (key: KeyObject): Signer => {
  if (key.type !== 'private')
    throw new ControlError('INVALID_INPUT', `a private key is needed to sign, not a ${key.type} key`, {
      details: { reason: 'not-private' },
    });
  const spki = spkiOf(key);
  const options = { key, dsaEncoding: 'ieee-p1363' } as const;
  const signOnPool = ({ input, resolve, reject }: Waiting): void =>
    sign('sha256', input, options, (error, signature) => (error === null ? resolve(signature) : reject(error)));
  let asked = 0;
  let waiting: Waiting[] = [];
  const endTurn = (): void => {
    const few = waiting;
    waiting = [];
    asked = 0;
    for (const { input, resolve } of few) resolve(sign('sha256', input, options));
  };
  const ask = (one: Waiting): void => {
    asked += 1;
    if (asked === 1) queueMicrotask(endTurn);
    if (asked <= aloneUpTo) waiting.push(one);
    else for (const next of [...waiting.splice(0), one]) signOnPool(next);
  };
  return Object.freeze({
    spki,
    sign: (input: Uint8Array): Promise<Uint8Array> => new Promise((resolve, reject) => ask({ input, resolve, reject })),
  });
};
