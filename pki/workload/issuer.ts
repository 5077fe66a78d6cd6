/** The issuer of workload tokens (WID-001 to WID-021): keys, tokens, and the two documents by which anybody verifies them. */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { promoteWorkloadKey, retireWorkloadKey, signingKeyOf, type WorkloadKeyState } from '../../domain/workload/keys.ts';
import { encodeBase64url, encodePublicJwk, type JwkDocument, signJws } from '../jose/index.ts';
import { type WorkloadTokenOrder, workloadClaims } from './claims.ts';
import { type DiscoveryDocument, discoveryDocument } from './documents.ts';
import { parseIssuerUrl } from './issuer-url.ts';
import { type HeldKey, noKeys, readStoredKeys, type StoredWorkloadKey, storedKeysOf, type WorkloadKeys, withNewKey } from './keys.ts';

export interface WorkloadIssuerOptions {
  /** https on port 443 (WID-010). */
  readonly issuer: string;
  readonly defaultAudience: string;
  /** Others that a request may name. */
  readonly audiences?: readonly string[];
  /** What exportKeys wrote; absent: a new key that signs. */
  readonly keys?: readonly StoredWorkloadKey[];
  /** Unix milliseconds. Every process that shares the keys needs one clock. */
  readonly now?: () => number;
  readonly random?: (bytes: number) => Uint8Array;
}

export interface WorkloadToken {
  /** Compact JWS. */
  readonly token: string;
  readonly jti: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

export interface WorkloadIssuer {
  readonly issuer: string;
  readonly defaultAudience: string;
  /** @throws INVALID_INPUT for an id, a life or a claim that is not allowed; PERMISSION_DENIED (audience) */
  issueToken(order: WorkloadTokenOrder): Promise<WorkloadToken>;
  /** The empty one stands for the default. */
  allowsAudience(audience: string): boolean;
  /** The public keys as a verifier fetches them. */
  jwks(): { readonly keys: readonly JwkDocument[] };
  discovery(): DiscoveryDocument;
  /** The keys without their private halves, in the order in which they were added. */
  listKeys(): ReadonlyMap<string, WorkloadKeyState>;
  /** Publishes a new key; the one that signs goes on (WID-018). @throws INVALID_STATE when there are too many */
  addKey(): { readonly kid: string };
  /** Signs with a published key from now on (WID-019). @throws NOT_FOUND; INVALID_STATE (promote-too-early) */
  promote(kid: string): void;
  /** Takes a key out of the set (WID-020). @throws NOT_FOUND; INVALID_STATE (key-signs, retire-too-early) */
  retire(kid: string): void;
  /** A secret: private keys in PEM (WID-021, WID-042). */
  exportKeys(): StoredWorkloadKey[];
}

const tokenType = 'JWT';
const jtiBytes = 16;
const maxAudiences = 64;
const audiencePattern = /^[\x21-\x7e]{1,256}$/;

/** @throws INVALID_CONFIG for an issuer, an audience or a stored key that is not one */
export function createWorkloadIssuer(options: WorkloadIssuerOptions): WorkloadIssuer {
  const { issuer } = parseIssuerUrl(options.issuer);
  const { defaultAudience, now = Date.now, random = randomBytes } = options;
  const audiences = readAudiences(defaultAudience, options.audiences ?? []);
  let keys: WorkloadKeys = options.keys === undefined ? withNewKey(noKeys, now()) : readStoredKeys(options.keys);
  return Object.freeze({
    issuer,
    defaultAudience,
    async issueToken(order: WorkloadTokenOrder) {
      const jti = encodeBase64url(random(jtiBytes));
      const claims = workloadClaims(order, { issuer, defaultAudience, audiences, now: now(), jti });
      const { signer } = keys.held.get(signingKeyOf(keys.ring)) as HeldKey;
      const token = await signJws({ signer, typ: tokenType, payload: Buffer.from(JSON.stringify(claims), 'utf8') });
      return { token, jti, expiresAt: claims.exp * second };
    },
    allowsAudience: (audience: string) => audience === '' || audiences.has(audience),
    jwks: () => ({ keys: [...keys.ring.keys()].map((kid) => encodePublicJwk((keys.held.get(kid) as HeldKey).spki, 'sig')) }),
    discovery: () => discoveryDocument(issuer),
    listKeys: () => new Map(keys.ring),
    addKey() {
      keys = withNewKey(keys, now());
      return { kid: [...keys.ring.keys()].at(-1) as string };
    },
    promote(kid: string) {
      keys = { ...keys, ring: promoteWorkloadKey(keys.ring, { kid, now: now() }).ring };
    },
    retire(kid: string) {
      const { ring } = retireWorkloadKey(keys.ring, { kid, now: now() });
      keys = { ring, held: new Map([...keys.held].filter(([id]) => ring.has(id))) };
    },
    exportKeys: () => storedKeysOf(keys),
  });
}

function readAudiences(defaultAudience: string, others: readonly string[]): ReadonlySet<string> {
  const audiences = new Set([defaultAudience, ...others]);
  for (const audience of audiences)
    if (!audiencePattern.test(audience))
      throw badAudience(`${JSON.stringify(audience.slice(0, 100))} is no audience: 1 to 256 printable characters`);
  if (audiences.size > maxAudiences) throw badAudience(`${audiences.size} audiences are more than ${maxAudiences}`);
  return audiences;
}

const badAudience = (message: string): ControlError => new ControlError('INVALID_CONFIG', message, { details: { reason: 'audiences' } });
