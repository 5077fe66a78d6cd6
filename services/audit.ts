/**
 * The audit trail: an append-only chain, hash = SHA-256(previous hash ‖ canonical JSON of the event). The counter's row lock,
 * held to the commit, makes its order the order of commits; an event that belongs to a change is written in the transaction of
 * that change. The chain alone does not stop whoever can write every row; rotation evidence under the audit key does.
 */
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { canonicalJson } from '../pki/audit/canonical-json.ts';
import { type AuditEvent, type AuditRow, auditHash, deploymentTenant } from '../pki/audit/event.ts';

export type { AuditEvent, AuditRow } from '../pki/audit/event.ts';

const lockCounter = { name: 'audit-lock', text: 'select seq, hash from audit_counter where id = 1 for update' };
const findKey = { name: 'audit-key', text: 'select seq, actor, action, subject, tenant_id as tenant from audit_events where key = $1' };
const insert = {
  name: 'audit-insert',
  text: `with counted as (update audit_counter set seq = $1, hash = $9 where id = 1)
         insert into audit_events (seq, key, at, actor, action, subject, details, prev_hash, hash, tenant_id)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
};

/**
 * Appends one event in the caller's transaction. A repeated key appends nothing.
 *
 * @returns its place in the chain
 * @throws CONFLICT when the key names another event
 */
export async function appendAudit(
  tx: Executor,
  event: AuditEvent,
  now: number,
): Promise<{ readonly seq: number; readonly appended: boolean }> {
  const [counter] = await tx.query<{ seq: number; hash: Uint8Array }>(lockCounter);
  if (counter === undefined) throw new ControlError('INTERNAL', 'the audit counter is missing: migrate the database');
  const tenant = event.tenant ?? deploymentTenant;
  const [known] = await tx.query<{ seq: number; action: string; subject: string; tenant: string }>(findKey, [event.key]);
  if (known !== undefined) {
    if (known.action !== event.action || known.subject !== event.subject || known.tenant !== tenant) {
      throw new ControlError('CONFLICT', `audit key ${event.key} names another event`, {
        details: { reason: 'audit-key-used', key: event.key },
      });
    }
    return { seq: known.seq, appended: false };
  }
  const seq = counter.seq + 1;
  // What is stored is what is hashed: whole milliseconds, and the details as they come back from jsonb.
  const at = Math.floor(now);
  const hash = auditHash(counter.hash, { ...event, seq, at });
  const details = Buffer.from(canonicalJson(event.details)).toString();
  await tx.query(insert, [seq, event.key, instant(at), event.actor, event.action, event.subject, details, counter.hash, hash, tenant]);
  return { seq, appended: true };
}

/** Appends one event in a transaction of its own. */
export const recordAudit = (db: Database, event: AuditEvent, now: number): Promise<{ readonly seq: number; readonly appended: boolean }> =>
  db.transaction((tx) => appendAudit(tx, event, now));

const page = {
  name: 'audit-page',
  text: `select seq, key, at, actor, action, subject, details, prev_hash as "prevHash", hash, tenant_id as tenant
           from audit_events where seq > $1 order by seq limit $2`,
};

export const readAuditEvents = (db: Executor, input: { readonly afterSeq: number; readonly limit: number }): Promise<AuditRow[]> =>
  db.query<AuditRow>(page, [input.afterSeq, input.limit]);

const readCounter = { name: 'audit-counter', text: 'select seq, hash from audit_counter where id = 1' };

const tampered = (seq: number, what: string): ControlError =>
  new ControlError('AUDIT_TAMPERED', `audit event ${seq} ${what}`, { details: { reason: 'audit-chain', seq } });

function assertFollows(row: AuditRow, { seq, head }: { readonly seq: number; readonly head: Uint8Array }): void {
  if (row.seq !== seq + 1) throw tampered(seq + 1, 'is missing');
  if (!Buffer.from(row.prevHash).equals(head)) throw tampered(row.seq, 'does not follow the one before it');
  if (!Buffer.from(row.hash).equals(auditHash(head, row))) throw tampered(row.seq, 'does not match its hash');
}

/**
 * Reads the whole chain and checks every link.
 *
 * @throws AUDIT_TAMPERED naming the first event that does not fit
 */
export async function verifyAuditChain(db: Executor): Promise<{ readonly events: number; readonly head: Uint8Array }> {
  let seq = 0;
  let head: Uint8Array = new Uint8Array(32);
  for (;;) {
    const rows = await readAuditEvents(db, { afterSeq: seq, limit: 1_000 });
    for (const row of rows) {
      assertFollows(row, { seq, head });
      seq = row.seq;
      head = row.hash;
    }
    if (rows.length > 0) continue;
    const [counter] = await db.query<{ seq: number; hash: Uint8Array }>(readCounter);
    if (counter?.seq === seq && Buffer.from(counter.hash).equals(head)) return { events: seq, head };
    // An event and the counter are committed together: what the counter ran ahead by meanwhile is there to be read.
    const hasMore = (await readAuditEvents(db, { afterSeq: seq, limit: 1 })).length > 0;
    if (!hasMore) throw tampered(counter?.seq ?? 0, 'is missing at the end of the chain');
  }
}
