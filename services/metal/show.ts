/** Everything about one machine, for people: who it is, what it has, and each of its runs as one line of time. Reads only. */
import { commandStateName } from '../../domain/commands/states.ts';
import { type KnownMachine, matchKey } from '../../domain/metal/identity.ts';
import type { Executor } from '../../drizzle/client.ts';
import { machinesSharing } from './identities.ts';
import { getMachine } from './rows.ts';
import { commandPrefix, runColumns, runSummary, type StoredRun } from './stored-run.ts';
import type { DiskView, IdentityView, MachineDetails, RunCommandView, RunTimeline, StepView, TombstoneView } from './types.ts';

const identities = {
  name: 'machine-identities-view',
  text: 'select source, value, origin, last_seen_at as "lastSeenAt" from machine_identities where machine_id = $1 order by source, value',
};
const disks = {
  name: 'machine-disks-view',
  text: `select disk_key as key, name, serial, wwn, model, size_bytes as "sizeBytes", transport, rotational, origin, seen_at as "seenAt"
         from machine_disks where machine_id = $1 order by origin desc, disk_key`,
};
const runs = {
  name: 'machine-runs-view',
  text: `select ${runColumns} from metal_runs r where r.machine_id = $1 order by r.started_at desc, r.id limit $2`,
};
const steps = {
  name: 'machine-steps-view',
  text: `select run_id as "runId", step, attempt, state, detail, actor, started_at as "startedAt", ended_at as "endedAt"
         from metal_run_steps where run_id = any($1::text[]) order by started_at, ended_at nulls last, step`,
};
const commands = {
  name: 'machine-commands-view',
  text: `select c.id, c.node_id as "nodeId", c.kind, c.state, c.created_at as "createdAt", c.finished_at as "finishedAt",
           coalesce(nullif(r.error_message, ''), c.reject_reason, '') as error
         from node_commands c left join node_results r on r.command_id = c.id where starts_with(c.id, $1) order by c.created_at, c.id limit 1000`,
};
const evidence = {
  name: 'machine-evidence-view',
  text: `select id, run_id as "runId", kind, command_id as "commandId", complete, signer_serial as "signerSerial", finished_at as "finishedAt",
           recorded_at as "recordedAt"
         from metal_evidence where run_id = any($1::text[]) order by finished_at, id`,
};

/** @throws NOT_FOUND, for a stranger's machine too */
export async function showMachine(
  db: Executor,
  machineId: string,
  { tenants = 'all', runs: count = 10 }: { readonly tenants?: readonly string[] | 'all'; readonly runs?: number } = {},
): Promise<MachineDetails> {
  const machine = await getMachine(db, machineId, tenants);
  const facts = await db.query<Omit<IdentityView, 'duplicateOf'>>(identities, [machineId]);
  const rivals = (await machinesSharing(db, facts)).filter((known) => known.machineId !== machineId);
  return {
    ...machine,
    identities: facts.map((fact) => ({ ...fact, duplicateOf: rivalsOf(fact, rivals) })),
    disks: await db.query<DiskView>(disks, [machineId]),
    runs: await timelinesOf(db, await db.query<StoredRun>(runs, [machineId, count])),
  };
}

/** Who has the same value, whatever he calls it (M59). */
function rivalsOf(fact: Pick<IdentityView, 'source' | 'value'>, rivals: readonly KnownMachine[]): string[] {
  const key = matchKey(fact);
  if (key === null) return [];
  return rivals.filter(({ facts }) => facts.some((other) => matchKey(other) === key)).map(({ machineId }) => machineId);
}

async function timelinesOf(db: Executor, found: readonly StoredRun[]): Promise<RunTimeline[]> {
  const ids = found.map(({ id }) => id);
  const stepRows = await db.query<StepView & { runId: string }>(steps, [ids]);
  const evidenceRows = await db.query<RunTimeline['evidence'][number]>(evidence, [ids]);
  const timelines: RunTimeline[] = [];
  for (const run of found) {
    timelines.push({
      ...runSummary(run),
      steps: stepRows.filter(({ runId }) => runId === run.id).map(({ runId: _, ...step }) => step),
      commands: await commandsOf(db, commandPrefix(run)),
      evidence: evidenceRows.filter(({ runId }) => runId === run.id),
    });
  }
  return timelines;
}

async function commandsOf(db: Executor, prefix: string): Promise<RunCommandView[]> {
  const rows = await db.query<Omit<RunCommandView, 'state'> & { state: number }>(commands, [prefix]);
  return rows.map((row) => ({ ...row, state: commandStateName(row.state) ?? String(row.state) }));
}

const tombstones = {
  name: 'machine-tombstones-view',
  text: `select machine_id as "machineId", source, value, reason, created_at as "createdAt", created_by as "createdBy"
         from machine_tombstones where lifted_at is null order by created_at desc, machine_id, source limit $1`,
};

/** Those that stand, newest first. */
export const listTombstones = (db: Executor, limit = 1_000): Promise<TombstoneView[]> => db.query<TombstoneView>(tombstones, [limit]);
