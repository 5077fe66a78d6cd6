/**
 * One text for one JSON value: keys sorted by code unit, no whitespace, strings and numbers as JSON.stringify writes them.
 * White space and key order of the file therefore carry no meaning (KEY-022), and everything else does.
 */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export function canonicalJson(value: Json): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (isList(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key] as Json)}`);
  return `{${entries.join(',')}}`;
}

const isList = (value: Json): value is readonly Json[] => Array.isArray(value);

/** Base64 that would be written the same way again; null for anything else (H-19). */
export function parseBase64(text: unknown): Uint8Array | null {
  if (typeof text !== 'string') return null;
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? new Uint8Array(bytes) : null;
}
