/** Whose machines they are: a batch, a machine and a join token belong to one tenant. */
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { deploymentTenant } from '../pki/audit/event.ts';
import { appendAudit } from './audit.ts';
import { endOpenBatches } from './batches/close.ts';

/** Where everything belongs that names no tenant. */
export const defaultTenant = 'default';

export interface TenantView {
  readonly id: string;
  readonly createdAt: number;
  readonly deletedAt: number | null;
  readonly nodes: number;
}

/** In a claim it means every tenant (api/identity.ts). */
const everyTenant = 'all';

/** Lower-case letters, digits and dashes: it stands in ids, claims and on a command line. */
export const isTenantId = (id: string): boolean =>
  /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(id) && id !== deploymentTenant && id !== everyTenant;

const lockOne = { name: 'tenants-share', text: 'select deleted_at as "deletedAt" from tenants where id = $1 for share' };

/** To the end of the transaction it stays. @throws NOT_FOUND (unknown-tenant), INVALID_STATE (tenant-deleted) */
export async function assertTenant(tx: Executor, id: string): Promise<void> {
  const [tenant] = await tx.query<{ deletedAt: number | null }>(lockOne, [id]);
  if (tenant === undefined)
    throw new ControlError('NOT_FOUND', `no tenant is called ${id}`, { details: { reason: 'unknown-tenant', tenantId: id } });
  if (tenant.deletedAt === null) return;
  throw new ControlError('INVALID_STATE', `tenant ${id} was deleted`, { details: { reason: 'tenant-deleted', tenantId: id } });
}

const owned = { name: 'tenants-own', text: 'select id from nodes where id = any($1::text[]) and tenant_id = $2' };
const named = 5;

/**
 * Every machine is the tenant's own (QUO-023). One that is not there and one of another tenant are answered alike (QUO-025).
 *
 * @throws NOT_FOUND (unknown-machine) naming the first few
 */
export async function assertTenantOwns(tx: Executor, tenantId: string, machines: ReadonlySet<string>): Promise<void> {
  const rows = await tx.query<{ id: string }>(owned, [[...machines], tenantId]);
  const found = new Set(rows.map(({ id }) => id));
  const missing = [...machines].filter((id) => !found.has(id));
  if (missing.length === 0) return;
  const more = missing.length > named ? ` and ${missing.length - named} more` : '';
  throw new ControlError('NOT_FOUND', `tenant ${tenantId} has no machine ${missing.slice(0, named).join(', ')}${more}`, {
    details: { reason: 'unknown-machine', tenantId, machines: missing.slice(0, named) },
  });
}

const insert = {
  name: 'tenants-insert',
  text: 'insert into tenants (id, created_at) values ($1, $2) on conflict (id) do nothing returning id',
};

/** @throws INVALID_INPUT for an id that cannot be one; CONFLICT when it exists or existed */
export async function createTenant(db: Database, { id, actor, now }: { id: string; actor: string; now: number }): Promise<void> {
  if (!isTenantId(id)) {
    throw new ControlError(
      'INVALID_INPUT',
      `a tenant id is 1 to 63 lower-case letters, digits and dashes, not ${JSON.stringify(id.slice(0, 80))}`,
      {
        details: { reason: 'tenant-id' },
      },
    );
  }
  await db.transaction(async (tx) => {
    if ((await tx.query(insert, [id, instant(now)])).length === 0)
      throw new ControlError('CONFLICT', `a tenant ${id} exists, or existed`, { details: { reason: 'tenant-exists', tenantId: id } });
    await appendAudit(tx, { key: `tenant/${id}/created`, actor, action: 'tenant.create', subject: id, details: {}, tenant: id }, now);
  });
}

const list = {
  name: 'tenants-list',
  text: `select t.id, t.created_at as "createdAt", t.deleted_at as "deletedAt",
           (select count(*) from nodes n where n.tenant_id = t.id) as nodes from tenants t order by t.id limit $1`,
};

export const listTenants = (db: Executor, limit: number): Promise<TenantView[]> => db.query<TenantView>(list, [limit]);

const remove = { name: 'tenants-delete', text: 'update tenants set deleted_at = $2 where id = $1 and deleted_at is null returning id' };

/**
 * Ends a tenant: nothing new is made for it, and what waits of its batches is cancelled (BAT-061). Its machines stay known.
 *
 * @returns the batches that were cancelled; again for a tenant that is deleted: none
 * @throws NOT_FOUND; INVALID_STATE for the default tenant
 */
export async function deleteTenant(
  db: Database,
  { id, actor, now }: { id: string; actor: string; now: number },
): Promise<readonly string[]> {
  if (id === defaultTenant)
    throw new ControlError('INVALID_STATE', `tenant ${id} holds whatever names no tenant: it cannot be deleted`, {
      details: { reason: 'default-tenant' },
    });
  await db.transaction(async (tx) => {
    if ((await tx.query(remove, [id, instant(now)])).length === 0) {
      await assertTenant(tx, id).catch((error: unknown) => {
        if (!(error instanceof ControlError) || error.details['reason'] !== 'tenant-deleted') throw error;
      });
      return;
    }
    await appendAudit(tx, { key: `tenant/${id}/deleted`, actor, action: 'tenant.delete', subject: id, details: {}, tenant: id }, now);
  });
  return endOpenBatches(db, { tenantId: id, by: actor, reason: 'tenant-deleted', now });
}
