/**
 * The wire form of TPM 2.0 (TPM library specification, part 2): big-endian integers, and buffers with a length of two bytes before
 * them. Read strictly: nothing beyond the end, nothing left over.
 */
import { malformed } from './refusals.ts';

/** A window on bytes that it does not copy: whoever takes untrusted input copies it once, before. */
export class TpmReader {
  readonly #bytes: Buffer;
  readonly #field: string;
  #at = 0;

  constructor(bytes: Uint8Array, field: string) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#field = field;
  }

  take(name: string, size: number): Buffer {
    const end = this.#at + size;
    if (end > this.#bytes.length) throw malformed(`${this.#field}.${name}`, 'is cut short');
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  readU8(name: string): number {
    return this.take(name, 1)[0] as number;
  }

  readU16(name: string): number {
    return this.take(name, 2).readUInt16BE();
  }

  readU32(name: string): number {
    return this.take(name, 4).readUInt32BE();
  }

  /** A TPM2B: its bytes, at most so many. */
  readSized(name: string, maxBytes: number): Buffer {
    const size = this.readU16(name);
    if (size > maxBytes) throw malformed(`${this.#field}.${name}`, `has ${size} bytes, more than ${maxBytes}`);
    return this.take(name, size);
  }

  /** A number that must be this one. */
  expectU16(name: string, wanted: number): void {
    const found = this.readU16(name);
    if (found !== wanted) throw malformed(`${this.#field}.${name}`, `is ${showU16(found)}, not ${showU16(wanted)}`);
  }

  /** MALFORMED when anything is left. */
  close(): void {
    const left = this.#bytes.length - this.#at;
    if (left > 0) throw malformed(this.#field, `has ${left} bytes left over`);
  }
}

/** The one TPM2B that the bytes are. */
export function readWholeSized(bytes: Uint8Array, field: string, maxBytes: number): Buffer {
  const reader = new TpmReader(bytes, field);
  const content = reader.readSized('size', maxBytes);
  reader.close();
  return content;
}

export const showU16 = (value: number): string => `0x${value.toString(16).padStart(4, '0')}`;

export function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** A TPM2B of the bytes. */
export const sized = (bytes: Uint8Array): Buffer => Buffer.concat([u16(bytes.length), bytes]);
