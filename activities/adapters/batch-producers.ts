/** How our own workflows make batches, over PostgreSQL (services/batches). */
import { ControlError } from '../../domain/errors.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { createCommandBatch, readBatch } from '../../services/batches/index.ts';
import { readPublishedQuorum } from '../../services/published-quorum.ts';
import type { BatchProducerPorts } from '../batch-producers.ts';
import type { BatchesOptions } from './batches.ts';

const owners = {
  name: 'producers-owners',
  text: `select i.id, n.tenant_id as tenant from unnest($1::text[]) as i(id) left join nodes n on n.id = i.id`,
};

export const createBatchProducers = ({ db, trustDomain }: BatchesOptions): BatchProducerPorts['producers'] => ({
  published: () => readPublishedQuorum(db),
  tenantsOf: async (nodeIds) => {
    const rows = await db.query<{ id: string; tenant: string | null }>(owners, [nodeIds]);
    const unknown = rows.find(({ tenant }) => tenant === null);
    if (unknown !== undefined)
      throw new ControlError('NOT_FOUND', `no node is called ${unknown.id}`, { details: { reason: 'unknown-node', nodeId: unknown.id } });
    return [...new Set(rows.map(({ tenant }) => String(tenant)))];
  },
  create: async (batch) => create(db, batch, trustDomain()),
});

async function create(
  db: Database,
  { leaves, windowMs, ...batch }: Parameters<BatchProducerPorts['producers']['create']>[0],
  trustDomain: string,
): ReturnType<BatchProducerPorts['producers']['create']> {
  const now = await databaseNow(db);
  const quorum = await readPublishedQuorum(db);
  const request = { ...batch, scope: leaves, ...(windowMs === null ? {} : { windowMs }) };
  const { batchId, held } = await db.transaction((tx) => createCommandBatch(tx, request, { now, quorum, trustDomain, origin: 'module' }));
  return { batchId, held, notAfter: (await readBatch(db, batchId, { now })).notAfterMs };
}
