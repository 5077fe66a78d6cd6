/**
 * AES key wrap (RFC 3394). node unwraps an empty key and one of a single block, which are no wrappings of this algorithm, so
 * sizes are judged here before.
 */
import { createCipheriv, createDecipheriv } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';

const block = 8;
const initialValue = Buffer.alloc(block, 0xa6);
const maxBytes = 4_096;

const cipherOf = (kek: Uint8Array): string => {
  if (![16, 24, 32].includes(kek.length))
    throw new ControlError('INVALID_INPUT', `a key-encryption key has 16, 24 or 32 bytes, not ${kek.length}`, {
      details: { reason: 'key-size', field: 'key' },
    });
  return `id-aes${kek.length * 8}-wrap`;
};

/** INVALID_INPUT unless the key to wrap is 16 bytes or more, in blocks of 8. */
export const wrapKey = (kek: Uint8Array, key: Uint8Array): Buffer => {
  if (key.length < 2 * block || key.length > maxBytes || key.length % block !== 0)
    throw new ControlError('INVALID_INPUT', `a key to wrap has 16 bytes or more in blocks of 8, not ${key.length}`, {
      details: { reason: 'wrap-size', field: 'key' },
    });
  const cipher = createCipheriv(cipherOf(kek), kek, initialValue);
  return Buffer.concat([cipher.update(key), cipher.final()]);
};

/** MALFORMED for a size that no wrapping has; UNAUTHENTICATED (`key-wrap`) for another key-encryption key or a changed byte. */
export const unwrapKey = (kek: Uint8Array, wrapped: Uint8Array): Buffer => {
  if (wrapped.length < 3 * block || wrapped.length > maxBytes + block || wrapped.length % block !== 0)
    throw new ControlError('MALFORMED', `a wrapped key has 24 bytes or more in blocks of 8, not ${wrapped.length}`, {
      details: { reason: 'wrap-size', field: 'wrapped' },
    });
  const decipher = createDecipheriv(cipherOf(kek), kek, initialValue);
  try {
    return Buffer.concat([decipher.update(wrapped), decipher.final()]);
  } catch {
    throw new ControlError('UNAUTHENTICATED', 'the wrapped key was not made with this key, or was changed', {
      details: { reason: 'key-wrap', field: 'wrapped' },
    });
  }
};
