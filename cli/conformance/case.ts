/**
 * One line of input as a case: bounds and form first, then fields by name. Whatever is wrong with it is a refusal of that case,
 * so every reader here throws MALFORMED naming the field.
 */
import { ControlError } from '../../domain/errors.ts';

export type Case = Readonly<Record<string, unknown>>;

const malformed = (field: string, message: string): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `the case's ${field} ${message}`, { details: { reason: 'case', field } });

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** The JSON object a line is. MALFORMED for bytes that are not UTF-8, other JSON, an array, null, an empty line. */
export const parseCase = (line: Uint8Array): Case => {
  let value: unknown;
  try {
    value = JSON.parse(utf8.decode(line));
  } catch {
    throw malformed('line', 'is not one JSON object');
  }
  if (!isObject(value)) throw malformed('line', 'is not one JSON object');
  return value;
};

const isObject = (value: unknown): value is Case => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What the answer carries back: the id as it came, null when there is none. */
export const idOf = (read: Case): string | number | null => {
  const id = read['id'];
  return typeof id === 'string' || typeof id === 'number' ? id : null;
};

export const textField = (read: Case, name: string): string => {
  const text = read[name];
  if (typeof text !== 'string') throw malformed(name, 'is not a text');
  return text;
};

export const textsField = (read: Case, name: string): readonly string[] => {
  const texts = read[name];
  if (!Array.isArray(texts) || !texts.every((text) => typeof text === 'string')) throw malformed(name, 'is not a list of texts');
  return texts;
};

export const hexField = (read: Case, name: string): Uint8Array => {
  const text = textField(read, name);
  if (!/^(?:[0-9a-fA-F]{2})*$/.test(text)) throw malformed(name, 'is not hex');
  return Buffer.from(text, 'hex');
};

export const base64Field = (read: Case, name: string): Uint8Array => {
  const text = textField(read, name);
  const bytes = Buffer.from(text, 'base64');
  if (bytes.toString('base64') !== text) throw malformed(name, 'is not canonical base64');
  return bytes;
};

export const numberField = (read: Case, name: string): number => {
  const value = read[name];
  if (typeof value !== 'number') throw malformed(name, 'is not a number');
  return value;
};

/** undefined where the member is absent or null. */
export const findObject = (read: Case, name: string): Case | undefined => {
  const value = read[name] ?? undefined;
  if (value !== undefined && !isObject(value)) throw malformed(name, 'is not an object');
  return value;
};

export const objectField = (read: Case, name: string): Case => {
  const value = findObject(read, name);
  if (value === undefined) throw malformed(name, 'is missing');
  return value;
};

export const oneOf = <T extends string>(read: Case, name: string, allowed: readonly T[]): T => {
  const value = textField(read, name);
  const found = allowed.find((one) => one === value);
  if (found === undefined) throw malformed(name, `is none of ${allowed.join(', ')}`);
  return found;
};

export const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
