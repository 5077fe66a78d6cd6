/**
 * JSON as trust needs it: valid UTF-8, one object, no member twice. Two readers that take the first and the last of two `alg`
 * members would judge two different headers, so neither gets one (RFC 7515 section 10.12).
 */
import { malformed } from './refusals.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The object that the bytes are; MALFORMED naming the field for other bytes, other JSON, and a member that stands twice. */
export const parseJsonObject = (bytes: Uint8Array, field: string): JsonObject => {
  const text = decodeText(bytes, field);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw malformed(field, 'is not JSON');
  }
  if (!isJsonObject(value)) throw malformed(field, 'is not a JSON object');
  const twice = findRepeatedMember(text);
  if (twice !== null) throw malformed(field, `names ${twice} twice`);
  return value;
};

export const isJsonObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null && !Array.isArray(value);

const decodeText = (bytes: Uint8Array, field: string): string => {
  try {
    return utf8.decode(bytes);
  } catch {
    throw malformed(field, 'is not UTF-8');
  }
};

/** Only for text that JSON.parse took: then a string before a colon is a member, and brackets are balanced. */
const findRepeatedMember = (text: string): string | null => {
  const token = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g;
  const open: (Set<string> | null)[] = [];
  let last = '';
  for (const [found] of text.matchAll(token)) {
    if (found === '{') open.push(new Set());
    else if (found === '[') open.push(null);
    else if (found === '}' || found === ']') open.pop();
    else if (found === ':') {
      // By value, not by spelling: "alg" and "\u0061lg" are one name.
      const name = JSON.parse(last) as string;
      const names = open.at(-1);
      if (names?.has(name) === true) return JSON.stringify(name.slice(0, 64));
      names?.add(name);
    }
    last = found;
  }
  return null;
};

/** MALFORMED when the object has a member that is not on the list: what nobody reads, nobody may rely on. */
export const assertMembers = (value: JsonObject, known: readonly string[], field: string): void => {
  for (const name of Object.keys(value))
    if (!known.includes(name)) throw malformed(`${field}.${name.slice(0, 64)}`, 'is not a member that is read here');
};

/** A text of 1 to 256 characters, or null when the member is absent; MALFORMED otherwise. */
export const findText = (value: JsonObject, name: string, field: string): string | null => {
  if (!Object.hasOwn(value, name)) return null;
  const text = value[name];
  if (typeof text !== 'string' || text === '' || text.length > 256)
    throw malformed(`${field}.${name}`, 'is not a text of 1 to 256 characters');
  return text;
};
