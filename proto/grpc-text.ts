/** The text encoding of grpc-message: UTF-8, percent-encoded outside the printable ASCII characters (TRN-018). */

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder('utf-8', { ignoreBOM: true });

const isPlain = (byte: number): boolean => byte >= 0x20 && byte <= 0x7e && byte !== percent;
const percent = 0x25;

/** Percent-encodes the UTF-8 bytes outside 0x20..0x7E, and the percent sign itself. */
export function encodeGrpcMessage(message: string): string {
  let out = '';
  for (const byte of utf8.encode(message)) {
    out += isPlain(byte) ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return out;
}

/** What a peer sent as grpc-message. Never fails: a percent sign that starts no byte stays as it is, and so does what is no UTF-8, as U+FFFD. */
export function decodeGrpcMessage(encoded: string): string {
  const bytes = encoded.replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return fromUtf8.decode(Uint8Array.from(bytes, (character) => character.charCodeAt(0)));
}
