/** The identity facts of machines: stored, looked up by what they are compared by, and marked where two machines have one value. */
import { type IdentityFact, type KnownMachine, matchKey, matchKeys, sharedValues } from '../../domain/metal/identity.ts';
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

type Reader = Pick<Executor, 'query'>;

interface OwnedFact extends IdentityFact {
  readonly machineId: string;
}

/** Machines that have one of these values, with the facts that they share. Retired and deleted ones are nobody's rivals. */
export async function machinesSharing(db: Reader, facts: readonly IdentityFact[]): Promise<KnownMachine[]> {
  const keys = matchKeys(facts);
  const rows = await db.query<OwnedFact>(sharing, [facts.map(({ value }) => value)]);
  return byMachineOf(rows.filter((row) => keys.has(matchKey(row) ?? '')));
}

function byMachineOf(rows: readonly OwnedFact[]): KnownMachine[] {
  const byMachine = new Map<string, IdentityFact[]>();
  for (const { machineId, source, value } of rows) {
    byMachine.set(machineId, [...(byMachine.get(machineId) ?? []), { source, value }]);
  }
  return [...byMachine].map(([machineId, own]) => ({ machineId, facts: own }));
}

const factsOf = {
  name: 'machine-identities-of',
  text: 'select source, value from machine_identities where machine_id = $1 order by source, value',
};

export const readFacts = (db: Reader, machineId: string): Promise<IdentityFact[]> => db.query<IdentityFact>(factsOf, [machineId]);

/** A value that tells the machines that have it from nobody (M59). */
export interface SharedValue {
  /** `class:value`. */
  readonly value: string;
  /** All of them. */
  readonly machineIds: readonly string[];
}

const asList = (known: readonly KnownMachine[]): SharedValue[] =>
  Array.from(sharedValues(known), ([value, machineIds]) => ({ value, machineIds }));

/** What this machine shares with others. */
export async function valuesSharedBy(db: Reader, machineId: string): Promise<SharedValue[]> {
  const known = await machinesSharing(db, await readFacts(db, machineId));
  return asList(known).filter(({ machineIds }) => machineIds.includes(machineId));
}

const sharedByAny = {
  name: 'machine-identities-shared',
  text: `select i.machine_id as "machineId", i.source, i.value from machine_identities i join machines m on m.id = i.machine_id
         where m.state not in ('retired', 'deleted') and i.value in (
           select j.value from machine_identities j join machines k on k.id = j.machine_id
           where k.state not in ('retired', 'deleted') and j.source ~ '(serial|uuid|mac)$'
           group by j.value having count(distinct j.machine_id) > 1 order by j.value limit 1000)
         limit 10000`,
};

/** Of the whole deployment; of very many a part. */
export const valuesSharedByAny = async (db: Reader): Promise<SharedValue[]> => asList(byMachineOf(await db.query<OwnedFact>(sharedByAny)));

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
