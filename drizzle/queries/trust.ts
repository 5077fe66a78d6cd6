/** What the deployment publishes: one row, and the history of every digest that was ever published. */
import type { Executor } from '../client.ts';
import { instant } from '../client.ts';

export interface PublishedTrust {
  readonly version: number;
  /** Lower-case hex over the canonical content. */
  readonly digest: string;
  /** Ids of the command roots: lower-case hex of SHA-256 over each certificate. */
  readonly roots: readonly string[];
  /** An encoded TrustBundle: hand out exactly these bytes. */
  readonly body: Uint8Array;
  /** An encoded Signature by the JoinService key. */
  readonly signature: Uint8Array;
  readonly publishedAt: number;
  readonly publishedBy: string;
}

const columns = `version, digest, roots, body, signature, published_at as "publishedAt", published_by as "publishedBy"`;
const current = { name: 'trust-published', text: `select ${columns} from trust_bundle_state where id = 1 and version > 0` };

/** null before the first publication. */
export async function publishedTrust(db: Executor): Promise<PublishedTrust | null> {
  return (await db.query<PublishedTrust>(current))[0] ?? null;
}

const placeholder = {
  name: 'trust-placeholder',
  text: `insert into trust_bundle_state (id, version, digest, roots, body, signature, published_by)
         values (1, 0, '', '{}', '', '', '') on conflict (id) do nothing`,
};
const locked = { name: 'trust-locked', text: `select ${columns} from trust_bundle_state where id = 1 for update` };

/** Locks the recorded state to the end of the transaction; null before the first publication, which locks it as well. */
export async function lockPublishedTrust(tx: Executor): Promise<PublishedTrust | null> {
  await tx.query(placeholder);
  const [row] = await tx.query<PublishedTrust>(locked);
  return row === undefined || row.version === 0 ? null : row;
}

const earlier = { name: 'trust-earlier', text: 'select max(version) as version from trust_bundle_history where digest = $1' };

/** The highest version at which this content was published; null if never. */
export async function earlierVersionOf(tx: Executor, digest: string): Promise<number | null> {
  return (await tx.query<{ version: number | null }>(earlier, [digest]))[0]?.version ?? null;
}

const store = {
  name: 'trust-store',
  text: `with kept as (insert into trust_bundle_history (version, digest, reason, published_at, published_by) values ($1, $2, $7, $6, $8))
         update trust_bundle_state set version = $1, digest = $2, roots = $3, body = $4, signature = $5, published_at = $6, published_by = $8,
           approver_set = $9::jsonb, approver_set_sha256 = decode($10::text, 'hex'), approver_set_epoch = $11
         where id = 1`,
};

export interface TrustPublication extends PublishedTrust {
  /** Empty, or why a replaced content is published again. */
  readonly reason: string;
  /** For people and gates: what counts approvals reads the body. */
  readonly approverSet: { readonly json: string | null; readonly sha256: string | null; readonly epoch: number };
}

/** Replaces the published state and keeps its line of history. Only under lockPublishedTrust. */
export async function storePublishedTrust(tx: Executor, next: TrustPublication): Promise<void> {
  await tx.query(store, [
    next.version,
    next.digest,
    next.roots,
    next.body,
    next.signature,
    instant(next.publishedAt),
    next.reason,
    next.publishedBy,
    next.approverSet.json,
    next.approverSet.sha256,
    next.approverSet.epoch,
  ]);
}
