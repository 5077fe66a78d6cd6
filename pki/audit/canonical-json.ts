/**
 * JSON with one spelling for one value (the part of RFC 8785 that integers, strings, booleans, null, lists and objects need),
 * so that what is signed can be shown to people and still has exactly one byte form.
 */
import { ControlError } from '../../domain/errors.ts';

/** More than any document of ours has; a deeper one would be an attack on the stack of whoever reads it. */
const maxDepth = 64;

export type CanonicalValue = null | boolean | number | string | readonly CanonicalValue[] | { readonly [key: string]: CanonicalValue };

/**
 * Encodes `value`: keys sorted by UTF-16 code units, no white space.
 *
 * @throws ControlError MALFORMED for a number that is no safe integer, a lone surrogate, a value JSON does not have, or one in more
 *   than 64 lists and objects
 */
export const canonicalJson = (value: CanonicalValue): Uint8Array => new TextEncoder().encode(write(value, maxDepth));

/**
 * Decodes bytes that must be canonical already.
 *
 * @throws ControlError MALFORMED when they are not UTF-8 JSON, or another spelling of it
 */
export function parseCanonicalJson(bytes: Uint8Array): CanonicalValue {
  let value: CanonicalValue;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text) as CanonicalValue;
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the document is not JSON', { details: { reason: 'not-json' }, cause });
  }
  // Also catches duplicate keys, which JSON.parse would fold into the last one.
  if (write(value, maxDepth) !== text) {
    throw new ControlError('MALFORMED', 'the document is not in canonical form', { details: { reason: 'not-canonical' } });
  }
  return value;
}

function write(value: CanonicalValue, depthLeft: number): string {
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return writeText(value);
  if (typeof value === 'number') return writeNumber(value);
  if (typeof value !== 'object') throw malformed(`a ${typeof value} has no canonical form`);
  if (depthLeft === 0) throw malformed(`a value is in more than ${maxDepth} lists and objects`);
  const inner = (item: CanonicalValue): string => write(item, depthLeft - 1);
  if (Array.isArray(value)) return `[${value.map(inner).join(',')}]`;
  const entries = Object.entries(value as Record<string, CanonicalValue>).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, item]) => `${writeText(key)}:${inner(item)}`).join(',')}}`;
}

function writeText(value: string): string {
  if (/\p{Surrogate}/u.test(value)) throw malformed('a string holds half of a surrogate pair');
  return JSON.stringify(value);
}

function writeNumber(value: number): string {
  if (!Number.isSafeInteger(value) || Object.is(value, -0)) throw malformed(`${value} is no integer that has one spelling`);
  return String(value);
}

const malformed = (message: string): ControlError => new ControlError('MALFORMED', message, { details: { reason: 'not-canonical' } });
