/** The headers of a relayed request and of its answer: what may go out, what may come back. */
import { headersOfConnection, isHeaderOfConnection, isSecretHeader, secretHeaders } from '../../../domain/commands/proxy-headers.ts';
import { ControlError } from '../../../domain/errors.ts';
import type { site } from '../../../proto/index.ts';
import type { SecretBinding, SecretPort } from '../../secrets/port.ts';

/** Cookies and authentication of the answer are nobody's but the server's and ours. */
const notReturned = new Set([
  ...headersOfConnection,
  ...secretHeaders,
  'authentication-info',
  'proxy-authentication-info',
  'set-cookie',
  'set-cookie2',
  'www-authenticate',
]);

const bounds = Object.freeze({ count: 32, nameLength: 128, valueLength: 8 * 1024, returnedBytes: 16 * 1024 });

type Header = Pick<site.ProxyHeader, 'name' | 'value' | 'valueRef'>;

/** All problems at once; none of them repeats a value. */
export function problemsOfHeaders(headers: readonly Header[], { isPlain }: { isPlain: boolean }): string[] {
  if (headers.length > bounds.count) return [`headers are ${headers.length}, at most ${bounds.count}`];
  const names = headers.map(({ name }) => name.toLowerCase());
  return headers.flatMap((header, at) => {
    const problem = problemOf(header, { isPlain, isFirst: names.indexOf(header.name.toLowerCase()) === at });
    return problem === null ? [] : [`header ${at + 1}${isToken(header.name) ? ` (${header.name})` : ''} ${problem}`];
  });
}

interface Place {
  readonly isPlain: boolean;
  readonly isFirst: boolean;
}

const isToken = (name: string): boolean => name.length <= bounds.nameLength && /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/.test(name);

/** In this order; the first that is wrong is said. */
const headerRules: readonly (readonly [(header: Header, place: Place) => boolean, string])[] = [
  [({ name }) => !isToken(name), 'has a name that no header has'],
  [(_header, { isFirst }) => !isFirst, 'stands twice'],
  [({ name }) => isHeaderOfConnection(name), 'is of the connection, which is not the command’s to make'],
  [({ value, valueRef }) => value !== '' && valueRef !== '', 'has a value and a reference; it takes one of them'],
  [({ name, valueRef }) => valueRef === '' && isSecretHeader(name), 'holds a secret, which a command names by value_ref'],
  [({ valueRef }, { isPlain }) => valueRef !== '' && isPlain, 'is a secret, which is not sent without TLS'],
  [({ value }) => !isValue(value), 'has a value that no header has'],
];

const problemOf = (header: Header, place: Place): string | null => headerRules.find(([isWrong]) => isWrong(header, place))?.[1] ?? null;

const isValue = (value: string): boolean => value.length <= bounds.valueLength && /^[\t\x20-\x7e]*$/.test(value);

export interface OutgoingHeaders {
  readonly headers: Readonly<Record<string, string>>;
  /** As they are sent. */
  readonly secrets: readonly string[];
}

/**
 * The headers with the secrets that they name, each asked for by the command's own step (SEC-022).
 *
 * @throws what the broker says; INVALID_STATE (`secret-value`) when a secret could not stand in a header
 */
export async function resolveHeaders(
  headers: readonly Header[],
  { secrets: port, binding, signal }: { secrets: SecretPort; binding: SecretBinding; signal: AbortSignal },
): Promise<OutgoingHeaders> {
  const secrets: string[] = [];
  const resolved: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const { name, value, valueRef } of headers) {
    if (valueRef === '') resolved[name] = value;
    else {
      const text = Buffer.from(await port.read(valueRef, binding, signal)).toString('latin1');
      if (text === '' || !isValue(text))
        throw new ControlError('INVALID_STATE', `the secret of header ${name} is no value of a header`, {
          details: { reason: 'secret-value' },
        });
      secrets.push(text);
      resolved[name] = text;
    }
  }
  return { headers: resolved, secrets };
}

/** What goes back to the control plane, within its bound; and whether some was left out for it. */
export function returnedHeaders(
  raw: readonly string[],
  hide: (text: string) => string,
): { headers: { name: string; value: string }[]; truncated: boolean } {
  const headers: { name: string; value: string }[] = [];
  let bytes = 0;
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = '', value = ''] = raw.slice(at, at + 2);
    if (notReturned.has(name.toLowerCase())) continue;
    bytes += name.length + value.length;
    if (bytes > bounds.returnedBytes) return { headers, truncated: true };
    headers.push({ name, value: hide(value.replaceAll(/[^\t\x20-\x7e]/g, '?')) });
  }
  return { headers, truncated: false };
}
