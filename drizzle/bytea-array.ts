/**
 * Many byte strings as one parameter of type bytea[], in PostgreSQL's binary form: the driver would write them as text, two characters a
 * byte and quoted, which costs both sides more than what is done with them.
 */
const byteaOid = 17;
/** Dimensions, a flag for nulls, the element's type; then length and first index of the dimension. */
const headerBytes = 20;
const emptyHeaderBytes = 12;

export function byteaArray(values: readonly Uint8Array[]): Buffer {
  const isEmpty = values.length === 0;
  const out = Buffer.allocUnsafe(values.reduce((sum, value) => sum + 4 + value.length, isEmpty ? emptyHeaderBytes : headerBytes));
  out.writeInt32BE(isEmpty ? 0 : 1, 0);
  out.writeInt32BE(0, 4);
  out.writeInt32BE(byteaOid, 8);
  if (isEmpty) return out;
  out.writeInt32BE(values.length, 12);
  out.writeInt32BE(1, 16);
  let at = headerBytes;
  for (const value of values) {
    out.writeInt32BE(value.length, at);
    out.set(value, at + 4);
    at += 4 + value.length;
  }
  return out;
}
