/** What the issuer publishes (WID-011 to WID-014): the discovery document, and how both documents are served. */
import { second } from '../../domain/time.ts';
import { workloadTimes } from '../../domain/workload/keys.ts';
import { standardClaims } from './claims.ts';
import { jwksPath } from './issuer-url.ts';

export interface DiscoveryDocument {
  readonly issuer: string;
  readonly jwks_uri: string;
  readonly response_types_supported: readonly string[];
  readonly subject_types_supported: readonly string[];
  readonly id_token_signing_alg_values_supported: readonly string[];
  readonly claims_supported: readonly string[];
}

/** OpenID Connect Discovery 1.0, as far as an issuer without a login has something to say. */
export const discoveryDocument = (issuer: string): DiscoveryDocument => ({
  issuer,
  jwks_uri: `${issuer}${jwksPath}`,
  response_types_supported: ['id_token'],
  subject_types_supported: ['public'],
  id_token_signing_alg_values_supported: ['ES256'],
  claims_supported: [...standardClaims],
});

/** Both are public and for every origin; a cache keeps them exactly as long as the life of the keys counts on (WID-013, WID-014). */
export const documentHeaders = Object.freeze({
  'content-type': 'application/json',
  'cache-control': `public, max-age=${workloadTimes.jwksMaxAgeMs / second}`,
  'access-control-allow-origin': '*',
});
