/** A DER writer: definite, shortest lengths; nothing else is expressible. */
import { type DerNode, tags } from './der-reader.ts';

/** Octets that the length takes after the identifier. */
const lengthSize = (length: number): number =>
  length < 0x80 ? 1 : length < 0x100 ? 2 : length < 0x1_0000 ? 3 : length < 0x100_0000 ? 4 : 5;

/** Bytes that a value with this much content takes. */
export const sizeOfDer = (contentLength: number): number => 1 + lengthSize(contentLength) + contentLength;

/** Writes a value of known size front to back into one buffer: for what is written ten thousand times. */
export class DerSink {
  readonly out: Buffer;
  at = 0;

  constructor(size: number) {
    this.out = Buffer.allocUnsafe(size);
  }

  header(tag: number, contentLength: number): void {
    const size = lengthSize(contentLength);
    this.out[this.at] = tag;
    this.out[this.at + 1] = size === 1 ? contentLength : 0x80 | (size - 1);
    for (let i = size, rest = contentLength; i > 1; i--, rest = Math.floor(rest / 256)) this.out[this.at + i] = rest % 256;
    this.at += 1 + size;
  }

  put(bytes: Uint8Array): void {
    this.out.set(bytes, this.at);
    this.at += bytes.length;
  }

  text(text: string, encoding: 'hex' | 'latin1'): void {
    this.at += this.out.write(text, this.at, encoding);
  }

  /** What was written. A size that does not come out is a fault of ours, never of the input. */
  close(): Uint8Array {
    if (this.at !== this.out.length) throw new RangeError(`wrote ${this.at} of ${this.out.length} bytes`);
    return this.out;
  }
}

/** One value whose content is the parts, one after the other. */
export const encodeDer = (tag: number, ...parts: readonly Uint8Array[]): Uint8Array => {
  let length = 0;
  for (const part of parts) length += part.length;
  const sink = new DerSink(sizeOfDer(length));
  sink.header(tag, length);
  for (const part of parts) sink.put(part);
  return sink.close();
};

export const encodeDerSequence = (...parts: readonly Uint8Array[]): Uint8Array => encodeDer(tags.sequence, ...parts);

/** SET OF: sorts its members (X.690 11.6). */
export const encodeDerSet = (...parts: readonly Uint8Array[]): Uint8Array =>
  encodeDer(tags.set, ...[...parts].sort((left, right) => Buffer.compare(left, right)));

/** One value whose content is a text of single-octet characters. */
export const encodeDerLatin1 = (tag: number, text: string): Uint8Array => {
  const sink = new DerSink(sizeOfDer(text.length));
  sink.header(tag, text.length);
  sink.text(text, 'latin1');
  return sink.close();
};

/** A non-negative INTEGER of big-endian octets; leading zeros are dropped, a sign octet is put where it must be. */
export const encodeDerInteger = (magnitude: Uint8Array): Uint8Array => {
  let start = 0;
  while (start < magnitude.length - 1 && magnitude[start] === 0) start += 1;
  const octets =
    start === 0 && magnitude.length > 0 ? magnitude : Uint8Array.from(magnitude.length === 0 ? [0] : magnitude.subarray(start));
  return (octets[0] as number) >= 0x80 ? encodeDer(tags.integer, Uint8Array.of(0), octets) : encodeDer(tags.integer, octets);
};

export const encodeDerBoolean = (value: boolean): Uint8Array => encodeDer(tags.boolean, Uint8Array.of(value ? 0xff : 0x00));

export const encodeDerOctetString = (content: Uint8Array): Uint8Array => encodeDer(tags.octetString, content);

/** A BIT STRING of whole octets. */
export const encodeDerBitString = (octets: Uint8Array): Uint8Array => encodeDer(tags.bitString, Uint8Array.of(0), octets);

/** A named bit list: trailing zero bits are not written (X.690 11.2.2). Bit 0 is the first. */
export const encodeDerNamedBits = (bits: readonly number[]): Uint8Array => {
  const highest = Math.max(-1, ...bits);
  const octets = new Uint8Array(Math.floor(highest / 8) + 1);
  for (const bit of bits) octets[bit >> 3] = (octets[bit >> 3] as number) | (0x80 >> (bit & 7));
  return encodeDer(tags.bitString, Uint8Array.of(highest === -1 ? 0 : 7 - (highest % 8)), octets);
};

const arcOctets = (arc: bigint): number[] => {
  const octets = [Number(arc & 0x7fn)];
  for (let rest = arc >> 7n; rest > 0n; rest >>= 7n) octets.unshift(Number(rest & 0x7fn) | 0x80);
  return octets;
};

/** An OBJECT IDENTIFIER from its dotted text, which is ours (a constant), never input. */
export const encodeDerOid = (dotted: string): Uint8Array => {
  const [top = 0n, second = 0n, ...rest] = dotted.split('.').map(BigInt);
  return encodeDer(tags.oid, Uint8Array.from([top * 40n + second, ...rest].flatMap(arcOctets)));
};

/** The same bytes again for whatever readDer read. */
export const encodeDerNode = (node: DerNode): Uint8Array =>
  node.children === null ? encodeDer(node.tag, node.content) : encodeDer(node.tag, ...node.children.map(encodeDerNode));
