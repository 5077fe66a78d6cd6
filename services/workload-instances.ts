/**
 * Which instance runs on which node, for which tenant (WID-041). Whoever places instances records it here; a node's own word for what
 * it runs counts nothing.
 */
import { ControlError } from '../domain/errors.ts';
import { minute } from '../domain/time.ts';
import { workloadLimits } from '../domain/workload/limits.ts';
import { type Executor, instant, instantOrNull } from '../drizzle/client.ts';
import { isWorkloadId, workloadSubject } from '../pki/workload/index.ts';

export interface InstancePlacement {
  readonly instanceId: string;
  readonly tenantId: string;
  readonly nodeId: string;
  /** Where it is in its node's network, an IP address; absent: no tunnel leads to it. */
  readonly address?: string | undefined;
  /** Absent for an instance that is no sandbox. */
  readonly sandbox?: SandboxTerms | undefined;
}

export interface SandboxTerms {
  /** Unix milliseconds. */
  readonly endsAt: number;
  /** For one restored from a snapshot of memory: the instance that was captured. Its guest goes by that one's name (SBX-006). */
  readonly capturedOn?: string | undefined;
}

const place = {
  name: 'workload-instance-place',
  text: `insert into workload_instances as i (id, tenant_id, node_id, started_at, address, sandbox_ends_at, captured_on)
           values ($1, $2, $3, $4, host($5::inet), $6, $7)
         on conflict (id) do update set node_id = excluded.node_id, started_at = excluded.started_at, ended_at = null,
             address = excluded.address, sandbox_ends_at = excluded.sandbox_ends_at, captured_on = excluded.captured_on
           where i.tenant_id = excluded.tenant_id returning 1`,
};

/**
 * Records that an instance runs on a node; one that moved is on the new node alone.
 *
 * @throws INVALID_INPUT for an id that no subject can hold; CONFLICT when the instance is another tenant's
 */
export async function placeInstance(db: Executor, placement: InstancePlacement, now: number): Promise<void> {
  workloadSubject(placement);
  const { instanceId, tenantId, nodeId, address = null, sandbox } = placement;
  const terms = [instantOrNull(sandbox?.endsAt), sandbox?.capturedOn ?? null];
  if ((await db.query(place, [instanceId, tenantId, nodeId, instant(now), address, ...terms])).length > 0) return;
  throw new ControlError('CONFLICT', `instance ${instanceId} belongs to another tenant than ${tenantId}`, {
    details: { reason: 'instance-tenant' },
  });
}

export interface PlacedInstance {
  readonly id: string;
  readonly tenantId: string;
  readonly nodeId: string;
  readonly address: string | null;
  readonly sandboxEndsAt: number | null;
  readonly capturedOn: string | null;
}

const columns = `id, tenant_id as "tenantId", node_id as "nodeId", address, sandbox_ends_at as "sandboxEndsAt", captured_on as "capturedOn"`;
const findPlaced = {
  name: 'workload-instance-placed',
  text: `select ${columns} from workload_instances where id = $1 and ended_at is null`,
};
const listPlaced = {
  name: 'workload-instances-list',
  text: `select ${columns} from workload_instances where ended_at is null and id > $1 order by id limit $2`,
};

/** undefined for one that runs nowhere. */
export const findInstance = async (db: Executor, instanceId: string): Promise<PlacedInstance | undefined> =>
  (await db.query<PlacedInstance>(findPlaced, [instanceId]))[0];

/** Those that run, in order of id. */
export const listInstances = (
  db: Executor,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<PlacedInstance[]> => db.query<PlacedInstance>(listPlaced, [after, limit]);

const end = {
  name: 'workload-instance-end',
  text: 'update workload_instances set ended_at = $3 where id = $1 and node_id = $2 and ended_at is null returning 1',
};

/** Records that it runs there no more. False when it did not. */
export const endInstance = async (
  db: Executor,
  { instanceId, nodeId }: Omit<InstancePlacement, 'tenantId'>,
  now: number,
): Promise<boolean> => isWorkloadId(instanceId) && (await db.query(end, [instanceId, nodeId, instant(now)])).length > 0;

/** One statement: the placement holds and the minute has room, or nothing is counted. */
const admit = {
  name: 'workload-instance-admit',
  text: `update workload_instances set
           window_tokens = case when window_start > $3 then window_tokens + 1 else 1 end,
           window_start = case when window_start > $3 then window_start else $4 end
         where id = $1 and node_id = $2 and ended_at is null and (window_start <= $3 or window_tokens < $5)
         returning tenant_id as "tenantId"`,
};
const find = {
  name: 'workload-instance-find',
  text: 'select 1 from workload_instances where id = $1 and node_id = $2 and ended_at is null',
};

/** Whether the instance runs on this node, by the record. */
export const isPlaced = async (db: Executor, { instanceId, nodeId }: Omit<InstancePlacement, 'tenantId'>): Promise<boolean> =>
  (await db.query(find, [instanceId, nodeId])).length > 0;

export type Admission =
  | { readonly kind: 'admitted'; readonly tenantId: string }
  | { readonly kind: 'not-bound' }
  | { readonly kind: 'rate-limited' };

/** Whether this node may have a token for this instance now; counts it when it may. Shared by every replica. */
export async function admitTokenRequest(
  db: Executor,
  { instanceId, nodeId }: Omit<InstancePlacement, 'tenantId'>,
  now: number,
): Promise<Admission> {
  const [row] = await db.query<{ tenantId: string }>(admit, [
    instanceId,
    nodeId,
    instant(now - minute),
    instant(now),
    workloadLimits.tokensPerMinute,
  ]);
  if (row !== undefined) return { kind: 'admitted', tenantId: row.tenantId };
  return { kind: (await isPlaced(db, { instanceId, nodeId })) ? 'rate-limited' : 'not-bound' };
}
