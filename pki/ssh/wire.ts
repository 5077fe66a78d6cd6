/**
 * The SSH wire types (RFC 4251 section 5), read strictly: nothing beyond the end, nothing left over, integers in their shortest
 * form, 64-bit numbers as BigInt from end to end (2^53 + 1 is a serial like any other).
 */
import { malformed } from './refusals.ts';

/** A window on bytes that it does not copy: whoever takes untrusted input copies it once, before. */
export class SshReader {
  readonly #bytes: Buffer;
  readonly #field: string;
  #at = 0;

  constructor(bytes: Uint8Array, field: string) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#field = field;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** The bytes that `work` reads. */
  readWindow(work: (reader: SshReader) => void): Buffer {
    const from = this.#at;
    work(this);
    return this.#bytes.subarray(from, this.#at);
  }

  #take(name: string, size: number): Buffer {
    const end = this.#at + size;
    if (end > this.#bytes.length) throw malformed(`${this.#field}.${name}`, 'is cut short');
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  readByte(name: string): number {
    return this.#take(name, 1)[0] as number;
  }

  readU32(name: string): number {
    return this.#take(name, 4).readUInt32BE();
  }

  readU64(name: string): bigint {
    return this.#take(name, 8).readBigUInt64BE();
  }

  /** All that is left. */
  readRest(): Buffer {
    return this.#take('rest', this.#bytes.length - this.#at);
  }

  readString(name: string): Buffer {
    return this.#take(name, this.readU32(name));
  }

  /** A string of at most so many bytes of UTF-8 without control characters: a line end in a name would be a second line of some file. */
  readText(name: string, maxBytes: number): string {
    return decodeText(this.readString(name), `${this.#field}.${name}`, maxBytes);
  }

  /** A multiple-precision integer that is not negative, in its shortest form: its octets without a sign octet. */
  readMpint(name: string): Buffer {
    const octets = this.readString(name);
    const [first = 0, second = 0] = octets;
    if (first >= 0x80) throw malformed(`${this.#field}.${name}`, 'is negative');
    if (octets.length > 0 && first === 0 && second < 0x80) throw malformed(`${this.#field}.${name}`, 'is not in its shortest form');
    return first === 0 ? octets.subarray(1) : octets;
  }

  /** MALFORMED when anything is left. */
  close(): void {
    if (!this.isAtEnd) throw malformed(this.#field, `has ${this.#bytes.length - this.#at} bytes left over`);
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** MALFORMED naming the field for bytes that are no UTF-8, too long, or hold a control character. */
export const decodeText = (bytes: Uint8Array, field: string, maxBytes: number): string => {
  if (bytes.length > maxBytes) throw malformed(field, `has more than ${maxBytes} bytes`);
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw malformed(field, 'is not UTF-8');
  }
  if (!isOneLine(text)) throw malformed(field, 'holds a control character');
  return text;
};

/** No control character of any kind, line and paragraph separators included. */
export const isOneLine = (text: string): boolean => !/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text);

export const encodeU32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

export const encodeU64 = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value);
  return bytes;
};

/** A string: its length, then its bytes; text as UTF-8. */
export const encodeString = (value: Uint8Array | string): Buffer => {
  const bytes = typeof value === 'string' ? Buffer.from(value, 'utf8') : value;
  return Buffer.concat([encodeU32(bytes.length), bytes]);
};

/** A multiple-precision integer of octets that are not negative: leading zeros off, a sign octet where the top bit is set. */
export const encodeMpint = (octets: Uint8Array): Buffer => {
  const start = octets.findIndex((octet) => octet !== 0);
  const shortest = start < 0 ? octets.subarray(0, 0) : octets.subarray(start);
  return encodeString((shortest[0] ?? 0) >= 0x80 ? Buffer.concat([Uint8Array.of(0), shortest]) : shortest);
};
