/**
 * The revocation feed (REV-007 to REV-012). Revocations carry their own number, taken under the counter's row lock, which is
 * held to the commit: numbers appear in commit order, so "greater than the last one seen" misses nothing, however long a
 * transaction took (H-16). The overlap of 60 s that a feed by clock needs is not needed.
 */
import type { Executor } from '../client.ts';
import { instant } from '../client.ts';

export interface Revocation {
  readonly seq: number;
  /** Hex SHA-256 over the issuing authority's SPKI. */
  readonly issuer: string;
  /** Lower-case hex. */
  readonly serial: string;
  readonly nodeId: string;
  readonly reason: string;
  readonly revokedAt: number;
  readonly notAfter: number;
}

const columns = `revocation_seq as seq, issuer, serial, node_id as "nodeId", coalesce(revoke_reason, '') as reason,
  revoked_at as "revokedAt", not_after as "notAfter"`;

const after = {
  name: 'revocations-after',
  text: `select ${columns} from node_certs where revocation_seq > $1 order by revocation_seq, issuer, serial`,
};

const all = {
  name: 'revocations-all',
  text: `select ${columns} from node_certs where revocation_seq is not null and not_after > $1 order by revocation_seq, issuer, serial`,
};

const counter = { name: 'revocations-counter', text: 'select seq from revocation_counter where id = 1' };

/** Every revocation committed after `seq`, oldest first. */
export const readRevocationsAfter = (db: Executor, seq: number): Promise<Revocation[]> => db.query<Revocation>(after, [seq]);

/** The last number that was given out; 0 for none. */
export const readRevocationCounter = async (db: Executor): Promise<number> => (await db.query<{ seq: number }>(counter))[0]?.seq ?? 0;

/**
 * Every revoked, unexpired certificate, and the number to go on from. The number is read first: what commits in between is
 * read twice, never missed.
 */
export async function readAllRevoked(
  db: Executor,
  now: number,
): Promise<{ readonly seq: number; readonly revocations: readonly Revocation[] }> {
  const seq = await readRevocationCounter(db);
  return { seq, revocations: await db.query<Revocation>(all, [instant(now)]) };
}
