/** Reading enrolments. */
import { ControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import type { Enrolment } from './types.ts';

export const enrolmentColumns = `id, node_id as "nodeId", site_id as "siteId", role, tenant_id as "tenantId", kind, base_generation as "baseGeneration",
  address, port, login, become_root as "becomeRoot", host_key as "hostKey", credential, state, deadline, created_by as "createdBy", reason,
  created_at as "createdAt", ended_at as "endedAt", end_reason as "endReason"`;

const byId = { name: 'enrolments-one', text: `select ${enrolmentColumns} from enrolments where id = $1` };

/** @throws NOT_FOUND */
export async function getEnrolment(db: Executor, id: string): Promise<Enrolment> {
  const [row] = await db.query<Enrolment>(byId, [id]);
  if (row !== undefined) return row;
  throw new ControlError('NOT_FOUND', `no enrolment is called ${id}`, { details: { reason: 'unknown-enrolment' } });
}

const newest = {
  name: 'enrolments-page',
  text: `select ${enrolmentColumns} from enrolments
         where ($1::text is null or node_id = $1) and (not $2 or state in ('open', 'minted'))
         order by created_at desc, id limit $3`,
};

/** The newest first. */
export const listEnrolments = (
  db: Executor,
  { nodeId, openOnly, limit }: { readonly nodeId: string | null; readonly openOnly: boolean; readonly limit: number },
): Promise<Enrolment[]> => db.query<Enrolment>(newest, [nodeId, openOnly, limit]);

const lastCompleted = {
  name: 'enrolments-last-completed',
  text: `select ${enrolmentColumns} from enrolments where node_id = $1 and state = 'completed' order by ended_at desc limit 1`,
};

/** How the machine was reached the last time that it worked, and whose host key it was then (XC-034). */
export const lastCompletedEnrolment = async (db: Executor, nodeId: string): Promise<Enrolment | undefined> =>
  (await db.query<Enrolment>(lastCompleted, [nodeId]))[0];
