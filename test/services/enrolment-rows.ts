/** Enrolments over SSH as an operator and the hosts worker leave them, without either. */
import { randomUUID } from 'node:crypto';
import { completesWithinMs } from '../../domain/enrolment/states.ts';
import type { Executor } from '../../drizzle/client.ts';
import { sha256, t0 } from './support.ts';

export interface EnrolmentInit {
  readonly nodeId: string;
  readonly siteId?: string;
  readonly role?: 'node' | 'site';
  readonly tenantId?: string;
  /** null: the node is not known. */
  readonly baseGeneration: number | null;
  readonly state?: 'open' | 'minted' | 'failed' | 'cancelled';
  /** Of one that is minted. */
  readonly csr?: Uint8Array;
  readonly deadline?: number;
}

const insert = {
  text: `insert into enrolments (id, node_id, site_id, role, tenant_id, kind, base_generation, address, port, login, become_root, host_key, credential,
           state, csr_sha256, deadline, created_by, reason, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, '192.0.2.7', 22, 'root', false, 'SHA256:test', 'ssh/test', $8, $9, $10, 'olga', 'ticket 41', $11)`,
};

/** @returns its id */
export async function addEnrolment(db: Executor, init: EnrolmentInit): Promise<string> {
  const { nodeId, siteId = 'berlin', role = 'node', tenantId = 'default', baseGeneration, csr, state = csr ? 'minted' : 'open' } = init;
  const id = randomUUID();
  const kind = baseGeneration === null ? 'enrol' : 'reenrol';
  const { deadline = t0 + completesWithinMs } = init;
  const minted = csr === undefined ? [null, null] : [sha256(csr), new Date(deadline)];
  await db.query(insert, [id, nodeId, siteId, role, tenantId, kind, baseGeneration, state, ...minted, new Date(t0)]);
  return id;
}
