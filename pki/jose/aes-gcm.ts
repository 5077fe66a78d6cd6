/** AES-256-GCM with the only sizes in use: key 32, IV 12, tag 16 bytes. node alone would take a tag that was cut to 4 (H-19). */
import { createCipheriv, createDecipheriv } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';

export const gcmSizes = Object.freeze({ key: 32, iv: 12, tag: 16 });

export interface GcmBox {
  readonly key: Uint8Array;
  readonly iv: Uint8Array;
  readonly aad: Uint8Array;
}

export interface Sealed {
  readonly ciphertext: Uint8Array;
  readonly tag: Uint8Array;
}

const assertSizes = (box: GcmBox & Partial<Sealed>): void => {
  for (const name of ['key', 'iv', 'tag'] as const) {
    const bytes = box[name];
    if (bytes !== undefined && bytes.length !== gcmSizes[name])
      throw new ControlError('MALFORMED', `the ${name} of AES-256-GCM has ${gcmSizes[name]} bytes, not ${bytes.length}`, {
        details: { reason: 'gcm-size', field: name },
      });
  }
};

/** MALFORMED for other sizes. The caller never uses an IV twice with one key. */
export const sealGcm = (box: GcmBox, plaintext: Uint8Array): Sealed => {
  assertSizes(box);
  const cipher = createCipheriv('aes-256-gcm', box.key, box.iv, { authTagLength: gcmSizes.tag });
  cipher.setAAD(box.aad);
  const ciphertext = Buffer.concat([cipher.update(plaintext), cipher.final()]);
  return { ciphertext, tag: cipher.getAuthTag() };
};

/** MALFORMED for other sizes; UNAUTHENTICATED (`gcm-tag`) when anything was changed, or the key is another. */
export const openGcm = (box: GcmBox & Sealed): Buffer => {
  assertSizes(box);
  const decipher = createDecipheriv('aes-256-gcm', box.key, box.iv, { authTagLength: gcmSizes.tag });
  decipher.setAAD(box.aad);
  decipher.setAuthTag(box.tag);
  try {
    return Buffer.concat([decipher.update(box.ciphertext), decipher.final()]);
  } catch {
    throw new ControlError('UNAUTHENTICATED', 'the ciphertext was not made with this key, or was changed', {
      details: { reason: 'gcm-tag', field: 'tag' },
    });
  }
};
