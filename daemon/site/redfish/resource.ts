/**
 * An answer of a controller as JSON that can be walked without fear: bounded in depth before it is parsed, an object at the top, and
 * every field read by what it is and not by what it should be.
 */
import { ControlError } from '../../../domain/errors.ts';
import type { RawAnswer } from './whole-answer.ts';

export type Json = Readonly<Record<string, unknown>>;

export interface Resource {
  /** As it was asked for. */
  readonly path: string;
  readonly body: Json;
  /** Verbatim; null where it has none. */
  readonly etag: string | null;
}

/** The captured trees stay below 12. */
export const deepest = 64;

/** @throws INVALID_RESPONSE (bad-answer) */
export function parseAnswer(answer: RawAnswer, what: string): Json {
  const fail = (why: string, cause?: unknown): never => {
    throw new ControlError('INVALID_RESPONSE', `${what}: the answer ${why}`, {
      cause,
      details: { reason: 'bad-answer', status: answer.status },
    });
  };
  const encoding = answer.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') return fail(`is compressed (${encoding.slice(0, 20)}) although none was asked for`);
  if (depthOf(answer.text) > deepest) return fail(`is nested deeper than ${deepest}`);
  let value: unknown;
  try {
    value = JSON.parse(answer.text);
  } catch (cause) {
    return fail(answer.text.trim() === '' ? 'is empty' : `is not JSON: "${printable(answer.text, 60)}"`, cause);
  }
  return asObject(value) ?? fail('is no JSON object');
}

/** undefined for what does not parse: error pages and empty answers are no surprise where they do not matter. */
export function parseLoosely(answer: RawAnswer): Json | undefined {
  if (depthOf(answer.text) > deepest) return undefined;
  try {
    return asObject(JSON.parse(answer.text));
  } catch {
    return undefined;
  }
}

/** Of brackets outside of strings; nothing is parsed. Strings are skipped by their ends: they are most of an answer. */
export function depthOf(text: string): number {
  let depth = 0;
  let most = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === quote) at = endOfString(text, at + 1);
    else if (char === 0x7b || char === 0x5b) most = Math.max(most, ++depth);
    else if (char === 0x7d || char === 0x5d) depth -= 1;
  }
  return most;
}

const [quote, backslash] = [0x22, 0x5c] as const;

function endOfString(text: string, from: number): number {
  for (let end = text.indexOf('"', from); end !== -1; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (slashes < end - from && text.charCodeAt(end - 1 - slashes) === backslash) slashes += 1;
    if (slashes % 2 === 0) return end;
  }
  return text.length;
}

export const asObject = (value: unknown): Json | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : undefined;

/** What stands at `path` of own properties; undefined where the way ends early. */
export function fieldOf(body: Json, ...path: readonly string[]): unknown {
  let value: unknown = body;
  for (const name of path) {
    const object = asObject(value);
    if (object === undefined || !Object.hasOwn(object, name)) return undefined;
    value = object[name];
  }
  return value;
}

/** A text, trimmed and printable; empty for anything else. */
export function textOf(body: Json, ...path: readonly string[]): string {
  const value = fieldOf(body, ...path);
  return typeof value === 'string' ? printable(value, 256).trim() : '';
}

/** A number that is none of the impossible ones; 0 for anything else. */
export function countOf(body: Json, ...path: readonly string[]): number {
  const value = fieldOf(body, ...path);
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? Math.min(value, Number.MAX_SAFE_INTEGER) : 0;
}

export const listOf = (body: Json, ...path: readonly string[]): readonly unknown[] => {
  const value = fieldOf(body, ...path);
  return Array.isArray(value) ? value : [];
};

export const textsOf = (body: Json, ...path: readonly string[]): string[] =>
  listOf(body, ...path).filter((value): value is string => typeof value === 'string' && value.length <= 256);

/** The link of a reference {"@odata.id": …}. */
export const linkAt = (body: Json, ...path: readonly string[]): unknown => fieldOf(body, ...path, '@odata.id');

/** For messages: no line ends, no control characters, nothing that turns a terminal around. */
export function printable(text: string, most: number): string {
  const plain = text.slice(0, most * 2).replaceAll(/[\p{C}\s]+/gu, ' ');
  return plain.length > most ? `${plain.slice(0, most - 1)}…` : plain;
}
