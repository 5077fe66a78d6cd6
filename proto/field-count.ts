/**
 * How many fields a message holds, nested ones included, before it is decoded. A field takes two bytes on the wire and some hundred in
 * memory, and up to a microsecond to read: bytes alone bound neither (256 KiB of empty sub-messages take 150 ms and 60 MiB).
 */
import type { DescMessage } from '@bufbuild/protobuf';

/** No message of ours comes near; the largest legitimate ones are a few long values. */
export const maxMessageFields = 16_384;

/** Messages in messages: ours go five deep. */
const deepest = 64;

const submessages = new WeakMap<DescMessage, ReadonlyMap<number, DescMessage>>();

function submessagesOf(schema: DescMessage): ReadonlyMap<number, DescMessage> {
  const known = submessages.get(schema);
  if (known !== undefined) return known;
  const found = new Map(schema.fields.flatMap((field) => (field.message === undefined ? [] : [[field.number, field.message] as const])));
  submessages.set(schema, found);
  return found;
}

/** Whether more fields than allowed stand in it. Bytes that are no message are left to the decoder: false. */
export function holdsTooManyFields(schema: DescMessage, bytes: Uint8Array, most = maxMessageFields): boolean {
  // Two bytes make a field, so that nearly every message is judged by its length.
  return bytes.length > 2 * most && new FieldCounter(bytes, most).count(schema, bytes.length) > most;
}

class FieldCounter {
  readonly #bytes: Uint8Array;
  readonly #most: number;
  #at = 0;
  #count = 0;
  #depth = 0;

  constructor(bytes: Uint8Array, most: number) {
    this.#bytes = bytes;
    this.#most = most;
  }

  /** Reads on to `end`, or until there are too many. */
  count(schema: DescMessage | undefined, end: number): number {
    const inner = schema === undefined ? undefined : submessagesOf(schema);
    while (this.#at < end && this.#count <= this.#most) {
      const tag = this.#varint();
      this.#count += 1;
      this.#skipValue(tag, inner?.get(Math.floor(tag / 8)), end);
    }
    return this.#count;
  }

  #skipValue(tag: number, schema: DescMessage | undefined, end: number): void {
    const wire = tag % 8;
    if (wire === 0) this.#varint();
    else if (wire === 1) this.#at += 8;
    else if (wire === 5) this.#at += 4;
    else if (wire === 2) {
      const valueEnd = Math.min(end, this.#varint() + this.#at);
      if (schema !== undefined) this.#countInside(schema, valueEnd);
      this.#at = valueEnd;
    }
  }

  #countInside(schema: DescMessage, end: number): void {
    this.#depth += 1;
    if (this.#depth > deepest) this.#count = Number.POSITIVE_INFINITY;
    else this.count(schema, end);
    this.#depth -= 1;
  }

  #varint(): number {
    let value = 0;
    for (let factor = 1; this.#at < this.#bytes.length; factor *= 128) {
      const byte = this.#bytes[this.#at++] as number;
      value += (byte % 128) * factor;
      if (byte < 128) break;
    }
    return value;
  }
}
