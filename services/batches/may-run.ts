/**
 * Early answers for whoever asks for commands over the api (BAT-011 to BAT-013, BAT-049, BAT-050): the machines and the batch are the
 * caller's, the batch is open, and a destructive command has one. The queue asks all of it again.
 */
import { batchStateAt, takesCommands } from '../../domain/batch/states.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import { findBatches } from '../../drizzle/queries/batches.ts';
import { notOpen, unknownBatch } from './refusals.ts';
import { assertBatched } from './required.ts';

export interface RunRequest {
  readonly nodes: readonly string[] | 'all';
  readonly kind: string;
  /** Proto JSON of the kind's payload. */
  readonly payload: Readonly<Record<string, unknown>>;
  readonly batchId?: string | undefined;
  /** Whom the caller acts for. */
  readonly tenants: readonly string[] | 'all';
  readonly now: number;
}

/** @throws NOT_FOUND, INVALID_STATE, PERMISSION_DENIED as the queue would, or as a stranger's machine is answered */
export async function assertMayRun(db: Executor, { nodes, kind, payload, batchId, tenants, now }: RunRequest): Promise<void> {
  await assertBatched(db, [{ request: { id: kind, kind, ...(batchId === undefined ? {} : { batchId }) }, message: payload }]);
  await assertOwnNodes(db, { nodes, tenants });
  if (batchId === undefined) return;
  const [batch] = await findBatches(db, [batchId]);
  if (batch === undefined || (tenants !== 'all' && !tenants.includes(batch.tenantId))) throw unknownBatch(batchId);
  const state = batchStateAt(batch, now);
  if (!takesCommands(state)) throw notOpen(batchId, state, 'it takes no command');
}

const own = { name: 'batches-own-nodes', text: 'select id from nodes where id = any($1::text[]) and tenant_id = any($2::text[])' };

/** @throws PERMISSION_DENIED (tenant) for "all"; NOT_FOUND for a node that is not there, or not theirs */
export async function assertOwnNodes(db: Executor, { nodes, tenants }: Pick<RunRequest, 'nodes' | 'tenants'>): Promise<void> {
  if (tenants !== 'all') await assertOwn(db, nodes, tenants);
}

async function assertOwn(db: Executor, nodes: readonly string[] | 'all', tenants: readonly string[]): Promise<void> {
  if (nodes === 'all') {
    throw new ControlError('PERMISSION_DENIED', 'every node of the deployment is more than the tenants of this caller: name the nodes', {
      details: { reason: 'tenant' },
    });
  }
  const found = new Set((await db.query<{ id: string }>(own, [nodes, tenants])).map(({ id }) => id));
  const missing = nodes.find((id) => !found.has(id));
  if (missing !== undefined)
    throw new ControlError('NOT_FOUND', `no node is called ${missing}`, { details: { reason: 'unknown-node', nodeId: missing } });
}
