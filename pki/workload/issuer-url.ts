/** The issuer's address (WID-010): what tokens name as `iss`, and where relying parties look for the documents. */
import { ControlError } from '../../domain/errors.ts';

const maxLength = 512;

/** Paths of the documents below the issuer's own path (WID-011, WID-012). */
export const discoveryPath = '/.well-known/openid-configuration';
export const jwksPath = '/.well-known/jwks.json';

/**
 * Checks an issuer: https on port 443, a host, a path without a slash at its end; no query, fragment, user or odd spelling. `iss` is
 * compared as text by every relying party, so one issuer has one spelling.
 *
 * @throws INVALID_CONFIG (issuer-url) naming what is wrong
 */
export function parseIssuerUrl(text: string): { readonly issuer: string; readonly origin: string; readonly path: string } {
  const url = text.length <= maxLength && URL.canParse(text) ? new URL(text) : null;
  if (url === null) throw wrong(text, `it is not a URL of at most ${maxLength} characters`);
  for (const rule of rules) {
    const problem = rule(url, text);
    if (problem !== null) throw wrong(text, problem);
  }
  const path = url.pathname === '/' ? '' : url.pathname;
  const issuer = `${url.origin}${path}`;
  if (issuer !== text || path.endsWith('/')) throw wrong(text, `write it as ${issuer.replace(/\/+$/, '')}`);
  return Object.freeze({ issuer, origin: url.origin, path });
}

/** An empty query or fragment shows in the text alone. */
const rules: readonly ((url: URL, text: string) => string | null)[] = [
  (url) => (url.protocol === 'https:' ? null : 'it must be https'),
  (url) => (url.port === '' ? null : `it must be on port 443, not ${url.port}`),
  (_url, text) => (text.includes('?') ? 'it must not have a query' : null),
  (_url, text) => (text.includes('#') ? 'it must not have a fragment' : null),
  (url) => (url.username === '' && url.password === '' ? null : 'it must not name a user'),
];

const wrong = (text: string, what: string): ControlError =>
  new ControlError('INVALID_CONFIG', `${JSON.stringify(text.slice(0, 200))} cannot be the workload issuer: ${what}`, {
    details: { reason: 'issuer-url' },
  });
