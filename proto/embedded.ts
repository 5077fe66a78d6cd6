/**
 * A message inside another, as bytes: what a relay takes out of one envelope and puts into the next without reading it. A decoder and an
 * encoder between the two would write the same fields, and not always the same bytes.
 */
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

/** A copy of the one message that stands in field `number`; null when it does not stand there, or in pieces that a decoder would merge. */
export function embeddedMessage(envelope: Uint8Array, number: number): Uint8Array | null {
  const reader = new BinaryReader(envelope);
  let found: Uint8Array | null = null;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field !== number) reader.skip(wire, field);
    else if (found !== null || wire !== WireType.LengthDelimited) return null;
    else found = reader.bytes();
  }
  return found === null ? null : Uint8Array.from(found);
}

/** An envelope that holds nothing but this message, in field `number`. */
export const envelopeOf = (message: Uint8Array, number: number): Uint8Array =>
  new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(message).finish();
