/**
 * A strict DER reader (X.690 section 10 and 11), for the subset that certificates use.
 *
 * Refused, always: indefinite and non-minimal lengths, tags above 30, bytes after the value, constructed strings, integers and
 * bit strings in a form that is not the shortest, booleans other than 00 and FF, sets out of order. The only thing that ever
 * leaves here for bad input is MALFORMED.
 *
 * A reader is a window (at, end) on bytes that it does not copy: whoever takes untrusted input copies it once, before.
 */
import { malformed } from './malformed.ts';

/** Identifier octets of the types in use. */
export const tags = Object.freeze({
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  utf8String: 0x0c,
  printableString: 0x13,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
  context: (number: number): number => 0x80 | number,
  contextConstructed: (number: number): number => 0xa0 | number,
} as const);

const maxDepth = 24;

/** Compares as X.690 11.6 orders a SET OF: as octet strings, the shorter one padded with zeros at its end. */
const compareBytes = (left: Uint8Array, right: Uint8Array): number => Buffer.compare(left, right);

export class DerReader {
  readonly bytes: Buffer;
  readonly end: number;
  at: number;

  constructor(bytes: Uint8Array, at = 0, end: number = bytes.length) {
    this.bytes = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = at;
    this.end = end;
  }

  get isAtEnd(): boolean {
    return this.at >= this.end;
  }

  /** The next identifier octet; -1 at the end. */
  peek(): number {
    return this.at < this.end ? (this.bytes[this.at] as number) : -1;
  }

  /** Steps over the header of the next value, which must have this tag; returns where its content ends. */
  #header(tag: number): number {
    const { bytes, end } = this;
    let at = this.at;
    if (at + 2 > end) throw malformed('der-truncated', `a value is cut short at byte ${at}`);
    if (bytes[at] !== tag)
      throw malformed('der-tag', `tag 0x${tag.toString(16)} expected at byte ${at}, found 0x${(bytes[at] as number).toString(16)}`);
    let length = bytes[at + 1] as number;
    at += 2;
    if (length >= 0x80) {
      const count = length & 0x7f;
      if (count === 0 || count > 4) throw malformed('der-length', `the length at byte ${at - 1} is not a definite one of up to four bytes`);
      if (at + count > end) throw malformed('der-truncated', `a length is cut short at byte ${at}`);
      length = 0;
      for (let i = 0; i < count; i++) length = length * 256 + (bytes[at + i] as number);
      if (length < 0x80 || length < 256 ** (count - 1))
        throw malformed('der-length', `the length at byte ${at - 1} is not the shortest form`);
      at += count;
    }
    if (length > end - at) throw malformed('der-truncated', `the value at byte ${this.at} is longer than what holds it`);
    this.at = at;
    return at + length;
  }

  /** A reader on the content of the next value. */
  open(tag: number): DerReader {
    const end = this.#header(tag);
    const inner = new DerReader(this.bytes, this.at, end);
    this.at = end;
    return inner;
  }

  /** The content of the next value. */
  read(tag: number): Uint8Array {
    const end = this.#header(tag);
    const content = this.#window(this.at, end);
    this.at = end;
    return content;
  }

  /** A plain view: several times cheaper to make than a Buffer's subarray. */
  #window(from: number, to: number): Uint8Array {
    return new Uint8Array(this.bytes.buffer, this.bytes.byteOffset + from, to - from);
  }

  /** What was read since `from`. */
  windowFrom(from: number): Uint8Array {
    return this.#window(from, this.at);
  }

  /** The content of the next value in an encoding of bytes. */
  readText(tag: number, encoding: 'hex' | 'latin1'): string {
    const end = this.#header(tag);
    const text = this.bytes.toString(encoding, this.at, end);
    this.at = end;
    return text;
  }

  /** True, and a step forward, when exactly these bytes come next. */
  skip(expected: Uint8Array): boolean {
    const { bytes, at } = this;
    if (expected.length > this.end - at) return false;
    for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
    this.at = at + expected.length;
    return true;
  }

  /** The next value whole, header and content, whatever its (single-octet) tag. */
  readWhole(tag: number = this.peek()): Uint8Array {
    const start = this.at;
    if (tag !== -1 && (tag & 0x1f) === 0x1f) throw malformed('der-tag', `the tag at byte ${start} has more than one byte`);
    this.at = this.#header(tag);
    return this.#window(start, this.at);
  }

  /** Refuses anything that is left. */
  close(): void {
    if (this.at !== this.end) throw malformed('der-trailing', `${this.end - this.at} bytes are left over at byte ${this.at}`);
  }

  readBoolean(): boolean {
    const content = this.read(tags.boolean);
    if (content.length !== 1 || (content[0] !== 0x00 && content[0] !== 0xff))
      throw malformed('der-boolean', 'a boolean is neither 00 nor ff');
    return content[0] === 0xff;
  }

  /** The two's-complement content octets of a minimal INTEGER. */
  readInteger(): Uint8Array {
    const content = this.read(tags.integer);
    const first = content[0];
    if (first === undefined) throw malformed('der-integer', 'an integer is empty');
    const second = content[1];
    if (second !== undefined && ((first === 0x00 && second < 0x80) || (first === 0xff && second >= 0x80)))
      throw malformed('der-integer', 'an integer is not in its shortest form');
    return content;
  }

  /** A non-negative INTEGER below 2^31. */
  readSmallInteger(): number {
    const content = this.readInteger();
    if (content.length > 4 || (content[0] as number) >= 0x80) throw malformed('der-integer', 'an integer is out of range');
    return content.reduce((value, octet) => value * 256 + octet, 0);
  }

  /** A BIT STRING of whole octets. */
  readBitOctets(): Uint8Array {
    const content = this.read(tags.bitString);
    if (content.length < 2 || content[0] !== 0) throw malformed('der-bit-string', 'a bit string is empty or does not end on an octet');
    return content.subarray(1);
  }

  /** Dotted text. */
  readOid(): string {
    const end = this.#header(tags.oid);
    const text = oidText(this.bytes, this.at, end);
    this.at = end;
    return text;
  }
}

const maxOidTexts = 256;
const oidTexts = new Map<string | number, string>();

/** Dotted text of an OBJECT IDENTIFIER's content. Certificates name the same few again and again: decoded once. */
const oidText = (bytes: Buffer, at: number, end: number): string => {
  const key = end - at === 3 ? bytes.readUIntBE(at, 3) : bytes.toString('latin1', at, end);
  const known = oidTexts.get(key);
  if (known !== undefined) return known;
  const text = decodeOid(bytes.subarray(at, end));
  if (oidTexts.size < maxOidTexts) oidTexts.set(key, text);
  return text;
};

/** Arcs may have 128 bits (2.25 and a UUID). */
const decodeOid = (content: Uint8Array): string => {
  if (content.length === 0 || content.length > 64 || (content.at(-1) as number) >= 0x80)
    throw malformed('der-oid', 'an object identifier is empty, too long or cut short');
  const arcs: bigint[] = [];
  let arc = 0n;
  let isStart = true;
  for (const octet of content) {
    if (isStart && octet === 0x80) throw malformed('der-oid', 'an object identifier has an arc that is not in its shortest form');
    arc = (arc << 7n) | BigInt(octet & 0x7f);
    isStart = octet < 0x80;
    if (isStart) {
      arcs.push(arc);
      arc = 0n;
    }
  }
  const [first = 0n, ...rest] = arcs;
  const top = first < 40n ? 0n : first < 80n ? 1n : 2n;
  return [top, first - top * 40n, ...rest].join('.');
};

/** A DER value as a tree: constructed values have children, primitive ones content. */
export interface DerNode {
  readonly tag: number;
  readonly content: Uint8Array;
  /** null for a primitive value. */
  readonly children: readonly DerNode[] | null;
}

/**
 * Reads exactly one value, down to its leaves, and proves every length, tag form and set order in it. MALFORMED otherwise,
 * and when it nests deeper than 24.
 */
export const readDer = (bytes: Uint8Array): DerNode => {
  const reader = new DerReader(bytes);
  const node = readNode(reader, 0);
  reader.close();
  return node;
};

const readNode = (reader: DerReader, depth: number): DerNode => {
  if (depth > maxDepth) throw malformed('der-depth', `values nest deeper than ${maxDepth}`);
  const tag = reader.peek();
  assertTagForm(tag, reader.at);
  if ((tag & 0x20) === 0) return readPrimitive(reader, tag);
  const inner = reader.open(tag);
  const start = inner.at;
  const children: DerNode[] = [];
  const wholes: Uint8Array[] = [];
  while (!inner.isAtEnd) {
    const from = inner.at;
    children.push(readNode(inner, depth + 1));
    wholes.push(inner.bytes.subarray(from, inner.at));
  }
  if (tag === tags.set) assertSetOrder(wholes);
  return { tag, content: inner.bytes.subarray(start, inner.end), children };
};

/** Universal types have one form in DER: sequences and sets are constructed, everything else is primitive. */
const assertTagForm = (tag: number, at: number): void => {
  if (tag === -1) throw malformed('der-truncated', `a value is missing at byte ${at}`);
  const number = tag & 0x1f;
  if (number === 0x1f) throw malformed('der-tag', `the tag at byte ${at} has more than one byte`);
  if (tag >= 0x40) return;
  if (number === 0) throw malformed('der-tag', `the tag at byte ${at} is reserved`);
  const mustBeConstructed = number === 0x10 || number === 0x11;
  if (mustBeConstructed !== ((tag & 0x20) !== 0)) throw malformed('der-tag', `the value at byte ${at} is in a form that DER does not have`);
};

const readPrimitive = (reader: DerReader, tag: number): DerNode => {
  const start = reader.at;
  const content = reader.read(tag);
  const again = new DerReader(reader.bytes, start, reader.at);
  if (tag === tags.boolean) again.readBoolean();
  else if (tag === tags.integer) again.readInteger();
  else if (tag === tags.oid) again.readOid();
  else if (tag === tags.null && content.length > 0) throw malformed('der-null', 'a null has content');
  else if (tag === tags.bitString) assertBitString(content);
  return { tag, content, children: null };
};

/** Unused bits: at most seven, none without octets, and all zero (X.690 11.2.1). */
const assertBitString = (content: Uint8Array): void => {
  const unused = content[0];
  const last = content.length > 1 ? (content.at(-1) as number) : 0;
  if (unused === undefined || unused > 7 || (content.length === 1 && unused > 0) || (last & ((1 << unused) - 1)) !== 0)
    throw malformed('der-bit-string', 'a bit string has a wrong count of unused bits, or bits set among them');
};

/** MALFORMED when the encoded values are not in ascending order (X.690 11.6). Equal neighbours are the caller's question. */
export const assertSetOrder = (values: readonly Uint8Array[]): void => {
  for (let i = 1; i < values.length; i++)
    if (compareBytes(values[i - 1] as Uint8Array, values[i] as Uint8Array) > 0) throw malformed('der-set-order', 'a set is not in order');
};
