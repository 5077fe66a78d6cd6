/** What a workload token says (WID-005 to WID-009). */
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { tokenSeconds } from '../../domain/workload/keys.ts';

/** A JSON value without undefined: what a claim may be. */
export type ClaimValue = string | number | boolean | null | readonly ClaimValue[] | { readonly [name: string]: ClaimValue };

export interface WorkloadClaims {
  readonly iss: string;
  readonly sub: string;
  readonly aud: string;
  readonly iat: number;
  readonly nbf: number;
  readonly exp: number;
  readonly jti: string;
  readonly tenant_id: string;
  readonly instance_id: string;
}

/** Extra claims may not have these names (WID-009). */
export const standardClaims: ReadonlySet<string> = new Set<keyof WorkloadClaims>([
  'iss',
  'sub',
  'aud',
  'iat',
  'nbf',
  'exp',
  'jti',
  'tenant_id',
  'instance_id',
]);

export interface WorkloadTokenOrder {
  readonly tenantId: string;
  readonly instanceId: string;
  /** Empty or absent: the issuer's default. */
  readonly audience?: string;
  /** Default 600. */
  readonly lifetimeSeconds?: number;
  readonly claims?: Readonly<Record<string, ClaimValue>>;
}

export interface ClaimContext {
  readonly issuer: string;
  readonly defaultAudience: string;
  readonly audiences: ReadonlySet<string>;
  /** Unix milliseconds. */
  readonly now: number;
  readonly jti: string;
}

const defaultLifetimeSeconds = 600;
const maxExtraClaims = 32;
const maxExtraBytes = 4_096;
const claimName = /^[A-Za-z][A-Za-z0-9_.:/-]{0,127}$/;
/** No colon: the subject would read as another tenant's. */
const idPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

const invalid = (reason: string, message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason } });

/** True for an id that a subject can hold. */
export const isWorkloadId = (text: string): boolean => idPattern.test(text);

/** `t:<tenant>:instance:<instance>` (WID-006). @throws INVALID_INPUT when an id could make it read as another subject */
export function workloadSubject({ tenantId, instanceId }: { readonly tenantId: string; readonly instanceId: string }): string {
  for (const [name, id] of Object.entries({ tenant: tenantId, instance: instanceId })) {
    if (!isWorkloadId(id))
      throw invalid(`${name}-id`, `${JSON.stringify(id.slice(0, 128))} is no ${name} id: 1 to 128 of a-z, A-Z, 0-9, ".", "_" and "-"`);
  }
  return `t:${tenantId}:instance:${instanceId}`;
}

/** The audience of a token (WID-007). @throws PERMISSION_DENIED (audience) for one that is not allowed */
export function chooseAudience(
  wanted: string | undefined,
  { defaultAudience, audiences }: Pick<ClaimContext, 'defaultAudience' | 'audiences'>,
): string {
  if (wanted === undefined || wanted === '') return defaultAudience;
  if (audiences.has(wanted)) return wanted;
  throw new ControlError('PERMISSION_DENIED', `audience ${JSON.stringify(wanted.slice(0, 200))} is not one that tokens are issued for`, {
    details: { reason: 'audience' },
  });
}

/**
 * The claims of one token, in a fixed order.
 *
 * @throws INVALID_INPUT for an id, a life or an extra claim that is not allowed; PERMISSION_DENIED for an audience that is not
 */
export function workloadClaims(order: WorkloadTokenOrder, context: ClaimContext): WorkloadClaims & Record<string, ClaimValue> {
  const sub = workloadSubject(order);
  const aud = chooseAudience(order.audience, context);
  const lifetime = tokenSeconds(order.lifetimeSeconds ?? defaultLifetimeSeconds);
  const extra = extraClaims(order.claims ?? {});
  const iat = Math.floor(context.now / second);
  const { tenantId, instanceId } = order;
  return {
    iss: context.issuer,
    sub,
    aud,
    iat,
    nbf: iat,
    exp: iat + lifetime,
    jti: context.jti,
    tenant_id: tenantId,
    instance_id: instanceId,
    ...extra,
  };
}

function extraClaims(claims: Readonly<Record<string, ClaimValue>>): Record<string, ClaimValue> {
  const entries = Object.entries(claims);
  if (entries.length > maxExtraClaims)
    throw invalid('claims', `a workload token takes at most ${maxExtraClaims} extra claims, not ${entries.length}`);
  for (const [name] of entries) {
    if (standardClaims.has(name)) throw invalid('claim-shadows', `extra claim ${name} would shadow the standard one`);
    if (!claimName.test(name)) throw invalid('claims', `${JSON.stringify(name.slice(0, 128))} is no name of a claim`);
  }
  const text = JSON.stringify(Object.fromEntries(entries));
  if (Buffer.byteLength(text) > maxExtraBytes)
    throw invalid('claims', `the extra claims have ${Buffer.byteLength(text)} bytes, at most ${maxExtraBytes}`);
  // What is signed is what was measured: a getter or a toJSON cannot say something else later.
  return JSON.parse(text) as Record<string, ClaimValue>;
}
