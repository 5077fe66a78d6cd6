/** Private keys as they are kept: PKCS#8 (RFC 5958), for P-256 around an ECPrivateKey with its public half (RFC 5915). */
import { createPrivateKey, type KeyObject } from 'node:crypto';

/** What stands around the two halves of a P-256 key as OpenSSL and node write it: 138 bytes, and nothing else in them varies. */
const head = Buffer.from('308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420', 'hex');
const between = Buffer.from('a14403420004', 'hex');
const scalarAt = head.length;
const pointAt = scalarAt + 32 + between.length;
const length = pointAt + 64;

const isUsualForm = (der: Buffer): boolean =>
  der.length === length && head.equals(der.subarray(0, scalarAt)) && between.equals(der.subarray(scalarAt + 32, pointAt));

/**
 * The key of a PKCS#8 document. A P-256 key in its usual form is read by its numbers: OpenSSL 3 takes five times as long to find out
 * what a DER is, and neither way says whether the two halves belong together.
 *
 * @throws whatever node:crypto does for bytes that are no private key; the message may quote them, so callers pass on none of it
 */
export const readPrivateKey = (pkcs8: Uint8Array): KeyObject => {
  const der = Buffer.from(pkcs8.buffer, pkcs8.byteOffset, pkcs8.byteLength);
  if (!isUsualForm(der)) return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const number = (from: number): string => der.toString('base64url', from, from + 32);
  return createPrivateKey({
    key: { kty: 'EC', crv: 'P-256', d: number(scalarAt), x: number(pointAt), y: number(pointAt + 32) },
    format: 'jwk',
  });
};
