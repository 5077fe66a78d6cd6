/** base64url as RFC 7515 has it, in its one form: no padding, no blanks, no `+` or `/`, spare bits zero (H-19). */
import { malformed } from './refusals.ts';

export const encodeBase64url = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64url');

/** The bytes of a canonical base64url text; MALFORMED naming the field otherwise. node's own reader skips what it does not know. */
export const decodeBase64url = (text: unknown, field: string): Uint8Array => {
  if (typeof text !== 'string') throw malformed(field, 'is not a text');
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.toString('base64url') !== text) throw malformed(field, 'is not canonical base64url');
  return bytes;
};

/** The same, of exactly so many bytes. */
export const decodeExactly = (text: unknown, field: string, size: number): Uint8Array => {
  const bytes = decodeBase64url(text, field);
  if (bytes.length !== size) throw malformed(field, `has ${bytes.length} bytes, not ${size}`);
  return bytes;
};
