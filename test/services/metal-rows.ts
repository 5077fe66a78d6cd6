/** Rows of bare metal for tests that need a machine, its run and its boot entry, and not how they came about. */
import { randomBytes } from 'node:crypto';
import { hour } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { sha256, t0 } from './support.ts';

export interface BootRows {
  readonly runId: string;
  readonly entryId: string;
  readonly token: Uint8Array;
  readonly bootNonce: Uint8Array;
}

/** A machine over a node that is there, with an open run and a boot entry that nobody has used. */
export async function addBootEntry(
  db: Database,
  { nodeId, siteId = 'berlin', now = t0, expiresAt = now + hour }: { nodeId: string; siteId?: string; now?: number; expiresAt?: number },
): Promise<BootRows> {
  const [runId, entryId] = [randomBytes(6).toString('hex'), `entry-${randomBytes(4).toString('hex')}`];
  const [token, bootNonce] = [randomBytes(32), randomBytes(16)];
  const at = new Date(now);
  await db.query(
    { text: `insert into machines (id, site_id, state, created_by) values ($1, $2, 'provisioning', 'olga') on conflict (id) do nothing` },
    [nodeId, siteId],
  );
  await db.query({ text: `update metal_runs set state = 'done', ended_at = now() where machine_id = $1 and state = 'open'` }, [nodeId]);
  await db.query(
    {
      text: `insert into metal_runs (id, machine_id, kind, workflow_id, workflow_run_id, machine_state, actor, plan, started_at)
             values ($1, $2, 'provision', $3, $1, 'available', 'olga', '{}', $4)`,
    },
    [runId, nodeId, `machine/${nodeId}/provision`, at],
  );
  await db.query(
    {
      text: `insert into boot_entries (id, run_id, node_id, attempt, token_sha256, boot_nonce, created_at, expires_at)
             values ($1, $2, $3, 1, $4, $5, $6, $7)`,
    },
    [entryId, runId, nodeId, sha256(token), bootNonce, at, new Date(expiresAt)],
  );
  return { runId, entryId, token, bootNonce };
}
