/**
 * Joins that wait for an operator's word (JOIN-013): where the deployment says so, a machine whose evidence holds is deferred until somebody
 * who looked admits it. Its request is kept with what it shows; the same request again finds what was decided.
 *
 * Threat model: whoever holds evidence that holds, such as a join token that was copied. Before the word nothing is used up, so the owner of
 * the token can still be admitted in the thief's place: the request's digest, of its key and of whom it would be, tells them apart, and is what the
 * operator compares with what `bcd join` prints. Rows are bounded: one who has a token and makes keys fills the list, and no more than that.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { day } from '../../domain/time.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { deploymentTenant } from '../../pki/audit/event.ts';
import { appendAudit } from '../audit.ts';
import type { AttestorName, JoinFacts, JoinPolicy } from './types.ts';

export interface JoinRequestView {
  readonly id: string;
  readonly attestor: string;
  readonly role: string;
  /** null: one that will be made. */
  readonly nodeId: string | null;
  readonly siteId: string;
  /** SHA-256 of its request, hex: bcd join prints how it begins. */
  readonly csrSha256: string;
  /** What the machine says of itself. */
  readonly hardware: Readonly<Record<string, string>>;
  readonly firstAskedAt: number;
  readonly lastAskedAt: number;
  readonly state: 'waiting' | 'approved' | 'refused';
  readonly decidedAt: number | null;
  readonly decidedBy: string;
  readonly reason: string;
}

/** How soon the machine asks again. */
const askAgainSeconds = 30;
/** What nobody asks for any more is forgotten, whatever was decided. */
const keptMs = 7 * day;
/** Of those that wait; one more is refused until some were decided or forgotten. */
const mostWaiting = 1_000;
const longestClaim = 128;

/** Of the key, and of whom it would be: a word for one is no word for another. */
const idOf = ({ csrSha256, attestor, role, nodeId, siteId }: JoinFacts): string =>
  createHash('sha256')
    .update(JSON.stringify([csrSha256, attestor, role, nodeId, siteId]))
    .digest('hex')
    .slice(0, 32);

/** @param attestors whose joins wait; the others are admitted at once */
export const askOperators =
  (db: Database, attestors: readonly AttestorName[]): JoinPolicy =>
  async (facts) => {
    if (!attestors.includes(facts.attestor)) return { kind: 'admitted' };
    const { state, reason } = await ask(db, facts);
    switch (state) {
      case 'approved':
        return { kind: 'admitted' };
      case 'waiting':
        return { kind: 'deferred', retryAfterSeconds: askAgainSeconds };
      case 'refused':
        throw new ControlError('PERMISSION_DENIED', `an operator refused this join: ${reason}`, { details: { reason: 'join-refused' } });
    }
  };

const again = {
  name: 'join-requests-again',
  text: 'update join_requests set last_asked_at = greatest(last_asked_at, $2) where id = $1 returning state, reason',
};
const forget = { name: 'join-requests-forget', text: 'delete from join_requests where last_asked_at < $1' };
const insert = {
  name: 'join-requests-insert',
  text: `insert into join_requests (id, attestor, role, node_id, site_id, csr_sha256, hardware, first_asked_at, last_asked_at, state)
         select $1, $2, $3, $4, $5, $6, $7, $8, $8, 'waiting' where (select count(*) from join_requests where state = 'waiting') < $9
         on conflict (id) do nothing returning id`,
};

async function ask(db: Database, facts: JoinFacts): Promise<Pick<JoinRequestView, 'state' | 'reason'>> {
  const id = idOf(facts);
  const known = await db.query<Pick<JoinRequestView, 'state' | 'reason'>>(again, [id, instant(facts.now)]);
  if (known[0] !== undefined) return known[0];
  await db.query(forget, [instant(facts.now - keptMs)]);
  const { attestor, role, nodeId, siteId, csrSha256, now } = facts;
  const made = await db.query(insert, [
    id,
    attestor,
    role,
    nodeId,
    siteId,
    Buffer.from(csrSha256, 'hex'),
    JSON.stringify(claimsOf(facts)),
    instant(now),
    mostWaiting,
  ]);
  if (made.length > 0) return { state: 'waiting', reason: '' };
  const [other] = await db.query<Pick<JoinRequestView, 'state' | 'reason'>>(again, [id, instant(now)]);
  if (other !== undefined) return other;
  throw new ControlError('RATE_LIMITED', `${mostWaiting} joins wait for an operator already`, {
    details: { reason: 'too-many-joins-wait' },
  });
}

/** Short and printable: they stand in a list that people read. */
function claimsOf({ hardware }: JoinFacts): Record<string, string> {
  const claims = Object.entries(hardware ?? {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string' && entry[1] !== '',
  );
  return Object.fromEntries(
    claims
      .filter(([name]) => !name.startsWith('$'))
      .map(([name, value]) => [name, value.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, longestClaim)]),
  );
}

const columns = `id, attestor, role, node_id as "nodeId", site_id as "siteId", encode(csr_sha256, 'hex') as "csrSha256", hardware, first_asked_at as "firstAskedAt",
  last_asked_at as "lastAskedAt", state, decided_at as "decidedAt", decided_by as "decidedBy", reason`;
const list = {
  name: 'join-requests-list',
  text: `select ${columns} from join_requests where $1::text is null or state = $1 order by first_asked_at, id limit $2`,
};

/** The oldest first. */
export const listJoinRequests = (
  db: Pick<Executor, 'query'>,
  page: { readonly state: JoinRequestView['state'] | null; readonly limit: number },
): Promise<JoinRequestView[]> => db.query<JoinRequestView>(list, [page.state, page.limit]);

const decide = {
  name: 'join-requests-decide',
  text: `update join_requests set state = $2, decided_at = $3, decided_by = $4, reason = $5 where id = $1 and state = 'waiting' returning ${columns}`,
};
const stateOf = { name: 'join-requests-state', text: 'select state, decided_by as "decidedBy" from join_requests where id = $1' };

export interface JoinDecision {
  readonly id: string;
  readonly as: 'approved' | 'refused';
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

/** One word for each request, and in the trail. @throws NOT_FOUND; INVALID_STATE when it was decided before */
export async function decideJoin(db: Database, { id, as, actor, reason, now }: JoinDecision): Promise<JoinRequestView> {
  return db.transaction(async (tx) => {
    const [decided] = await tx.query<JoinRequestView>(decide, [id, as, instant(now), actor, reason]);
    if (decided === undefined) throw await undecidable(tx, id);
    const { attestor, role, nodeId, siteId } = decided;
    const details = { attestor, role, siteId, ...(nodeId === null ? {} : { nodeId }), reason };
    const event = {
      key: `join/${id}/${as}`,
      actor,
      action: `join.${as === 'approved' ? 'approve' : 'refuse'}`,
      subject: nodeId ?? `join/${id}`,
    };
    await appendAudit(tx, { ...event, details, tenant: deploymentTenant }, now);
    return decided;
  });
}

async function undecidable(tx: Executor, id: string): Promise<ControlError> {
  const [known] = await tx.query<{ state: string; decidedBy: string }>(stateOf, [id]);
  if (known === undefined) {
    return new ControlError('NOT_FOUND', `no join waits under the id ${id.slice(0, 64)}`, {
      details: { reason: 'unknown-join', hint: 'better-compute joins list' },
    });
  }
  return new ControlError('INVALID_STATE', `join ${id} was ${known.state} by ${known.decidedBy}`, { details: { reason: 'join-decided' } });
}
