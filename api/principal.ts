/**
 * Who asks, and what they may do (BAT-051, BAT-057). Decided on the tenant, on top of approvers' signatures and never instead of them: a
 * caller with every permission cannot make a machine run what nobody approved, and an approver's signature opens no door here.
 */
import { ControlError } from '../domain/errors.ts';
import type { CallerSession } from '../services/callers.ts';

export const permissions = Object.freeze([
  'batches.read',
  'batches.create',
  'batches.approve',
  'batches.cancel',
  'commands.read',
  'commands.run',
  'machines.read',
  /** Add, inspect, provision, retire, steer: what a run may destroy takes the approvers besides. */
  'machines.operate',
  /** Have tunnels to machines and instances of its tenants. */
  'tunnels.open',
  /** Have certificates for the guests of sandboxes of its tenants. */
  'sandboxes.exec',
  /** Everything that is not a tenant's: nodes, tokens, trust, rotations, the trail. Needs all tenants besides. */
  'deployment.operate',
] as const);

export type Permission = (typeof permissions)[number];

export interface Principal {
  /** As it stands in the trail and as creator of a batch. */
  readonly name: string;
  readonly kind: 'operator-token' | 'oidc';
  readonly tenants: readonly string[] | 'all';
  readonly permissions: readonly Permission[] | 'all';
  /** An agent that acts for `name` (RFC 8693 act), and by which delegation. */
  readonly agent: { readonly name: string; readonly delegationId: string } | null;
  readonly session: CallerSession;
}

const denied = (message: string, details: Readonly<Record<string, unknown>>): ControlError<'PERMISSION_DENIED'> =>
  new ControlError('PERMISSION_DENIED', message, { details });

/** @throws PERMISSION_DENIED (permission) */
export function assertPermission({ name, permissions: held, tenants }: Principal, permission: Permission): void {
  const has = held === 'all' || held.includes(permission);
  if (has && (permission !== 'deployment.operate' || tenants === 'all')) return;
  throw denied(
    `${name} may not do this: it takes the permission ${permission}${permission === 'deployment.operate' ? ' and all tenants' : ''}`,
    {
      reason: 'permission',
      permission,
    },
  );
}

export const maySee = ({ tenants }: Principal, tenantId: string): boolean => tenants === 'all' || tenants.includes(tenantId);

/** @throws PERMISSION_DENIED (tenant) */
export function assertTenantOf(principal: Principal, tenantId: string): void {
  if (maySee(principal, tenantId)) return;
  throw denied(`${principal.name} does not act for tenant ${tenantId}`, { reason: 'tenant', tenantId });
}

/**
 * Whose name stands at what is done. Behind the operator token stands whoever holds it: the name that is given is their claim, and
 * audited as that. An identity provider's word cannot be replaced by a field.
 *
 * @throws INVALID_INPUT (actor)
 */
export function actorOf({ name, kind }: Principal, given: string | undefined): string {
  if (given === undefined || given === name) return name;
  if (kind === 'operator-token') return given;
  throw new ControlError('INVALID_INPUT', `the actor is ${name}, as the identity provider says: leave the field out`, {
    details: { reason: 'actor' },
  });
}

/** Of the records, and of the workflows that are started for it. */
const longestActor = 128;

/** As actorOf; where an agent acts for the person, the record says so. @throws INVALID_INPUT (actor) */
export function recordedActorOf(principal: Principal, given: string | undefined): string {
  const actor = actorOf(principal, given);
  const { agent } = principal;
  if (agent === null) return actor;
  const whole = `${actor}, by agent ${agent.name} (${agent.delegationId})`;
  return whole.length <= longestActor ? whole : `${actor.slice(0, 56)}, by agent ${agent.name.slice(0, 56)}`;
}
