/**
 * Sealing the audit trail (AUD-001 to AUD-003): for each tenant with events behind its last checkpoint, one more checkpoint, at most
 * one an hour. Whoever runs first makes it; a second one at the same moment finds the number taken and makes none, so the schedule
 * and its retries need no lock. It reads what to do from the database: it takes no input but the key and the clock.
 */
import { hour, minute } from '../domain/time.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { createCheckpoint, type SignedCheckpoint } from '../pki/audit/checkpoint.ts';
import type { AuditRow } from '../pki/audit/event.ts';
import { createTrailVerifier, type TrailOptions, type TrailVerdict } from '../pki/audit/verify-trail.ts';
import type { Signer } from '../pki/x509/index.ts';

/** The schedule's period. */
export const checkpointEveryMs = hour;
/** A schedule that comes a little early must not wait another period. */
const slackMs = 5 * minute;
/** In one checkpoint, so that a backlog is sealed in pieces that fit into memory. */
const maxEvents = 100_000;
const pageSize = 1_000;

export interface CheckpointOptions {
  readonly db: Database;
  readonly signer: Signer;
  readonly trustDomain: string;
  readonly now: number;
}

export interface CheckpointMade {
  readonly tenant: string;
  readonly number: number;
  readonly events: number;
}

const dueTenants = {
  name: 'audit-due',
  text: `select e.tenant_id as tenant
           from (select tenant_id, max(seq) as seq from audit_events group by tenant_id) e
           left join lateral (select at, through_seq from audit_checkpoints c where c.tenant_id = e.tenant_id order by number desc limit 1) c on true
          where e.seq > coalesce(c.through_seq, 0) and (c.at is null or c.at <= $1)
          order by e.tenant_id`,
};
const lastCheckpoint = {
  name: 'audit-last-checkpoint',
  text: 'select document, through_seq as "throughSeq" from audit_checkpoints where tenant_id = $1 order by number desc limit 1',
};
const unsealedHashes = {
  name: 'audit-unsealed',
  text: 'select seq, hash from audit_events where tenant_id = $1 and seq > $2 order by seq limit $3',
};
const insertCheckpoint = {
  name: 'audit-checkpoint',
  text: `insert into audit_checkpoints (tenant_id, number, at, through_seq, document, signature) values ($1, $2, $3, $4, $5, $6)
         on conflict do nothing returning number`,
};

/** @returns the checkpoints this call made; empty when nothing was due. @throws what the database and the signer throw */
export async function checkpointAudit(options: CheckpointOptions): Promise<CheckpointMade[]> {
  const { db, now } = options;
  const due = await db.query<{ tenant: string }>(dueTenants, [instant(now - checkpointEveryMs + slackMs)]);
  const made: CheckpointMade[] = [];
  for (const { tenant } of due) {
    for (let more = true; more; ) {
      const one = await checkpointTenant(options, tenant);
      if (one !== null) made.push(one);
      more = one !== null && one.events === maxEvents;
    }
  }
  return made;
}

/** null: another process made it first, or nothing is left. */
async function checkpointTenant({ db, signer, trustDomain, now }: CheckpointOptions, tenant: string): Promise<CheckpointMade | null> {
  const [last] = await db.query<{ document: Uint8Array; throughSeq: number }>(lastCheckpoint, [tenant]);
  const events = await db.query<{ seq: number; hash: Uint8Array }>(unsealedHashes, [tenant, last?.throughSeq ?? 0, maxEvents]);
  if (events.length === 0) return null;
  const { checkpoint, document, signature } = await createCheckpoint({
    trustDomain,
    tenant,
    at: now,
    previous: last?.document ?? null,
    events,
    signer,
  });
  const { number, throughSeq } = checkpoint;
  const written = await db.query(insertCheckpoint, [tenant, number, instant(checkpoint.at), throughSeq, document, signature]);
  return written.length === 0 ? null : { tenant, number, events: events.length };
}

const allCheckpoints = {
  name: 'audit-checkpoints',
  text: 'select document, signature from audit_checkpoints where tenant_id = $1 order by number',
};
const tenantPage = {
  name: 'audit-tenant-page',
  text: `select seq, key, at, actor, action, subject, details, prev_hash as "prevHash", hash, tenant_id as tenant
           from audit_events where tenant_id = $1 and seq > $2 order by seq limit $3`,
};

/** Reads a tenant's trail, page by page, and judges it against the pin (AUD-004, AUD-006). */
export async function verifyTenantTrail(db: Executor, options: Omit<TrailOptions, 'checkpoints'>): Promise<TrailVerdict> {
  const { tenant } = options;
  // Before the events: one that is made meanwhile covers none that is not read.
  const checkpoints = await db.query<SignedCheckpoint>(allCheckpoints, [tenant]);
  const verifier = createTrailVerifier({ ...options, checkpoints });
  for (let seq = 0; ; ) {
    const rows = await db.query<AuditRow>(tenantPage, [tenant, seq, pageSize]);
    for (const row of rows) verifier.add(row);
    const last = rows.at(-1);
    if (last === undefined) return verifier.end();
    seq = last.seq;
  }
}
