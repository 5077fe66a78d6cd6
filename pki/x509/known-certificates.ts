import { parseCertificate } from './certificate.ts';
import type { Certificate } from './types.ts';

const maxKnown = 128;
const known = new Map<string, Certificate>();

/**
 * parseCertificate for certificates of ours that come again and again (trust anchors, issuing authorities): parsed once, found
 * again by their content, so that a changed byte is another certificate. Never for what a peer sends: it would fill the store.
 */
export const parseKnownCertificate = (der: Uint8Array): Certificate => {
  const content = Buffer.from(der.buffer, der.byteOffset, der.byteLength).toString('latin1');
  const found = known.get(content);
  if (found !== undefined) return found;
  const certificate = parseCertificate(der);
  if (known.size >= maxKnown) known.delete(known.keys().next().value as string);
  known.set(content, certificate);
  return certificate;
};
