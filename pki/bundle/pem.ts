/**
 * PEM, strictly: one block of the expected label, lines of 64, nothing around it. What parses is exactly what would be
 * written, so a bundle read and written again is the same document, and a second block behind the first is never overlooked.
 */
export type PemLabel = 'CERTIFICATE' | 'PUBLIC KEY' | 'PRIVATE KEY';

export function encodePem(label: PemLabel, der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}

/** null when `text` is not exactly one canonical block of this label. */
export function parsePem(label: PemLabel, text: string): Uint8Array | null {
  const head = `-----BEGIN ${label}-----\n`;
  const tail = `\n-----END ${label}-----\n`;
  if (!text.startsWith(head) || !text.endsWith(tail) || text.length < head.length + tail.length) return null;
  const der = Buffer.from(text.slice(head.length, -tail.length), 'base64');
  return encodePem(label, der) === text ? new Uint8Array(der) : null;
}
