/** The identity facts of machines: stored, looked up by what they are compared by, and marked where two machines have one value. */
import { type IdentityFact, type KnownMachine, matchKey, matchKeys } from '../../domain/metal/identity.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import type { FactOrigin } from './types.ts';

const upsert = {
  name: 'machine-identities-upsert',
  text: `insert into machine_identities as i (machine_id, source, value, origin, first_seen_at, last_seen_at)
         select $1, source, value, $4, $5, $5 from unnest($2::text[], $3::text[]) as f(source, value)
         on conflict (machine_id, source, value) do update set last_seen_at = greatest(i.last_seen_at, excluded.last_seen_at)`,
};

export async function storeFacts(
  tx: Executor,
  { machineId, facts, origin, now }: { machineId: string; facts: readonly IdentityFact[]; origin: FactOrigin; now: number },
): Promise<void> {
  if (facts.length === 0) return;
  const values = [machineId, facts.map(({ source }) => source), facts.map(({ value }) => value), origin, instant(now)];
  await tx.query(upsert, values);
}

const sharing = {
  name: 'machine-identities-sharing',
  text: `select i.machine_id as "machineId", i.source, i.value from machine_identities i join machines m on m.id = i.machine_id
         where i.value = any($1::text[]) and m.state not in ('retired', 'deleted') limit 10000`,
};

/** Machines that have one of these values, with the facts that they share. Retired and deleted ones are nobody's rivals. */
export async function machinesSharing(db: Executor, facts: readonly IdentityFact[]): Promise<KnownMachine[]> {
  const keys = matchKeys(facts);
  const rows = await db.query<IdentityFact & { machineId: string }>(sharing, [facts.map(({ value }) => value)]);
  const byMachine = new Map<string, IdentityFact[]>();
  for (const { machineId, source, value } of rows) {
    const key = matchKey({ source, value });
    if (key === null || !keys.has(key)) continue;
    byMachine.set(machineId, [...(byMachine.get(machineId) ?? []), { source, value }]);
  }
  return [...byMachine].map(([machineId, own]) => ({ machineId, facts: own }));
}

const factsOf = {
  name: 'machine-identities-of',
  text: 'select source, value from machine_identities where machine_id = $1 order by source, value',
};

export const readFacts = (db: Executor, machineId: string): Promise<IdentityFact[]> => db.query<IdentityFact>(factsOf, [machineId]);

export interface TombstoneHit extends IdentityFact {
  readonly machineId: string;
  readonly reason: string;
}

const buried = {
  name: 'machine-tombstones-hit',
  text: 'select machine_id as "machineId", source, value, reason from machine_tombstones where value = any($1::text[]) and lifted_at is null',
};

/** A machine that was deleted with somebody's data on it, and that these facts are of (M55). */
export async function findTombstone(db: Executor, facts: readonly IdentityFact[]): Promise<TombstoneHit | undefined> {
  const keys = matchKeys(facts);
  const rows = await db.query<TombstoneHit>(buried, [facts.map(({ value }) => value)]);
  return rows.find((row) => keys.has(matchKey(row) ?? ''));
}
