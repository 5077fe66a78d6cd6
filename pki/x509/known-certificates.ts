import { parseCertificate } from './certificate.ts';
import type { Certificate } from './types.ts';

const maxKnown = 128;
const byContent = new Map<string, Certificate>();
const byBuffer = new WeakMap<Uint8Array, Certificate>();

/**
 * parseCertificate for certificates of ours that come again and again (trust anchors, issuing authorities): parsed once, found
 * again by their bytes, so that a changed byte is another certificate. Never for what a peer sends: it would fill the store.
 */
export const parseKnownCertificate = (der: Uint8Array): Certificate => {
  const last = byBuffer.get(der);
  if (last !== undefined && Buffer.compare(last.der, der) === 0) return last;
  const content = Buffer.from(der.buffer, der.byteOffset, der.byteLength).toString('latin1');
  const certificate = byContent.get(content) ?? parseCertificate(der);
  if (byContent.size >= maxKnown) byContent.delete(byContent.keys().next().value as string);
  byContent.set(content, certificate);
  byBuffer.set(der, certificate);
  return certificate;
};
