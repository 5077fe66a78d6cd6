/** Key derivation: HKDF-SHA256 (RFC 5869), and the Concat KDF of JWE (NIST SP 800-56A, RFC 7518 section 4.6.2). */
import { createHash, hkdfSync } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';

/** 255 blocks of 32 bytes: what HKDF can give. */
const maxHkdfBytes = 8_160;

/** INVALID_INPUT when `size` is not 1 to 8160 whole bytes. */
export const hkdfSha256 = (options: {
  readonly ikm: Uint8Array;
  readonly salt: Uint8Array;
  readonly info: Uint8Array | string;
  readonly size: number;
}): Buffer => {
  const { ikm, salt, info, size } = options;
  if (!Number.isSafeInteger(size) || size < 1 || size > maxHkdfBytes)
    throw new ControlError('INVALID_INPUT', `HKDF-SHA256 gives 1 to ${maxHkdfBytes} bytes, not ${size}`, {
      details: { reason: 'hkdf-size', field: 'size' },
    });
  return Buffer.from(hkdfSync('sha256', ikm, salt, info, size));
};

const u32be = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

const prefixed = (bytes: Uint8Array): Buffer => Buffer.concat([u32be(bytes.length), bytes]);

/** One block of the Concat KDF: the 32 bytes of a key-encryption key for `algorithm`. apu and apv may be empty. */
export const concatKdf = (options: {
  readonly secret: Uint8Array;
  readonly algorithm: string;
  readonly apu: Uint8Array;
  readonly apv: Uint8Array;
}): Buffer =>
  createHash('sha256')
    .update(u32be(1))
    .update(options.secret)
    .update(prefixed(Buffer.from(options.algorithm, 'ascii')))
    .update(prefixed(options.apu))
    .update(prefixed(options.apv))
    // SuppPubInfo: the length of the derived key in bits, not that of the content key.
    .update(u32be(256))
    .digest();
