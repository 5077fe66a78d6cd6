/** What is known of a machine at this moment, for a step that has to decide: observed states, never what somebody intended. Reads only. */
import type { Remains } from '../../domain/metal/run-ends.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Executor, instant, instantOrNull } from '../../drizzle/client.ts';
import { type BootEntryRow, bootEntryOf, findBootEntry, latestEntry } from './boot-entries.ts';
import { remainsOfRun } from './finish-run.ts';
import { unknownMachine } from './refusals.ts';
import { getMachine, type MachineRow, machineColumns, machineTables, machineViewOf } from './rows.ts';
import { findOpenRun, getRun, runSummary } from './stored-run.ts';
import type { DiskView, MachineObservation, NodeObservation, RunFacts, RunSummary } from './types.ts';

/** Of the live session of the node's generation; seen since the value `since`. */
const connectedRole = (since: string): string =>
  `(select s.role from node_presence p join node_sessions s on s.id = p.session_id
      join node_certs sc on sc.issuer = s.cert_issuer and sc.serial = s.cert_serial
    where p.node_id = n.id and s.ended_at is null and p.last_seen_at >= ${since} and sc.generation = n.identity_generation)`;
const latestCertificate = `left join lateral (select role, issued_at from node_certs where node_id = n.id and generation = n.identity_generation
    and cert_der is not null and revoked_at is null order by issued_at desc limit 1) c on true`;

const node = {
  name: 'metal-node-facts',
  text: `select n.state, n.role, n.identity_generation as generation, ${connectedRole('$2')} as "connectedRole",
           c.role as "certificateRole", c.issued_at as "certifiedAt"
         from nodes n ${latestCertificate} where n.id = $1`,
};

const nodeFacts = async (db: Executor, machineId: string, now: number): Promise<NodeObservation> => {
  const [row] = await db.query<NodeObservation>(node, [machineId, instant(now - connectedWithinMs)]);
  return row ?? { state: 'unknown', role: 'node', generation: 0, connectedRole: null, certificateRole: null, certifiedAt: null };
};

/** All that steps ask of a run's machine in one statement: every step of every run reads it, many of them again and again while they wait. */
const facts = {
  name: 'metal-run-facts',
  text: `select ${machineColumns},
           e."entryId" is not null as "hasEntry", e."entryId", e."runId", e.attempt, e."bootNonce", e."expiresAt", e."usedAt", e.closed,
           n.state as "nodeState", n.role as "nodeRole", n.identity_generation as "identityGeneration",
           ${connectedRole("coalesce($4::timestamptz, clock_timestamp()) - $5::bigint * interval '1 millisecond'")} as "connectedRole",
           c.role as "certificateRole", c.issued_at as "certifiedAt",
           array(select distinct value from machine_identities where machine_id = m.id and source like '%mac' and source <> 'redfish-manager-mac'
                 order by value) as "macAddresses",
           (select coalesce(json_agg(json_build_object('key', d.disk_key, 'name', d.name, 'serial', d.serial, 'wwn', d.wwn, 'model', d.model,
                'sizeBytes', d.size_bytes, 'transport', d.transport, 'rotational', d.rotational, 'origin', d.origin,
                'seenAt', floor(extract(epoch from d.seen_at) * 1000)) order by d.disk_key), '[]')
            from machine_disks d where d.machine_id = m.id and d.origin = 'ramdisk' and d.seen_at >= $3) as disks
         from ${machineTables} ${latestCertificate} left join lateral (${latestEntry(2)}) e on true
         where m.id = $1`,
};

interface FactsRow extends MachineRow, BootEntryRow, Pick<NodeObservation, 'connectedRole' | 'certificateRole' | 'certifiedAt'> {
  /** false: it has not booted yet, and the columns of its entry are null. */
  readonly hasEntry: boolean;
  readonly nodeState: string;
  readonly nodeRole: string;
  readonly identityGeneration: number;
  readonly macAddresses: readonly string[];
  readonly disks: readonly DiskView[];
}

/**
 * Everything that a run's step asks for.
 *
 * @param now null: by the database's clock @throws NOT_FOUND
 */
export async function readRunFacts(db: Executor, runId: string, now: number | null): Promise<RunFacts> {
  const run = await getRun(db, runId);
  const values = [run.machineId, runId, instant(run.startedAt), instantOrNull(now), connectedWithinMs];
  const [row] = await db.query<FactsRow>(facts, values);
  if (row === undefined) throw unknownMachine(run.machineId);
  // A machine has one open run at most.
  const open = run.state === 'open' ? run : await findOpenRun(db, run.machineId);
  return {
    run: runSummary(run),
    isOpen: run.state === 'open',
    profile: run.profile,
    actions: run.plan.actions,
    ...observed(row, open === undefined ? null : runSummary(open)),
  };
}

function observed(row: FactsRow, open: RunSummary | null): Pick<RunFacts, 'machine' | 'macAddresses' | 'disks' | 'bootEntry' | 'node'> {
  const { macAddresses, disks, hasEntry, entryId, runId, attempt, bootNonce, expiresAt, usedAt, closed, ...others } = row;
  const { nodeState, nodeRole, identityGeneration, connectedRole: role, certificateRole, certifiedAt, ...machine } = others;
  return {
    machine: machineViewOf(machine, open),
    macAddresses,
    disks,
    bootEntry: hasEntry ? bootEntryOf({ entryId, runId, attempt, bootNonce, expiresAt, usedAt, closed }) : null,
    node: { state: nodeState, role: nodeRole, generation: identityGeneration, connectedRole: role, certificateRole, certifiedAt },
  };
}

/** A machine with what speaks for it now. @throws NOT_FOUND */
export async function observeMachine(db: Executor, machineId: string, now: number): Promise<MachineObservation> {
  const { state, stateReason, power, powerAt, run } = await getMachine(db, machineId);
  return {
    machineId,
    state,
    stateReason,
    power,
    powerAt,
    identity: await nodeFacts(db, machineId, now),
    run,
    bootEntry: run === null ? null : await findBootEntry(db, run.id),
  };
}

export interface Standing {
  /** If the run ended now, and not as it was meant to. */
  readonly remains: Remains;
  /** The image is on the disk, with evidence that says so, and no wipe came after it. */
  readonly deployed: boolean;
}

const deployed = {
  name: 'metal-deployed',
  text: `select coalesce((select e.kind = 'deploy' and e.complete from metal_evidence e where e.run_id = $1 order by e.finished_at desc, e.kind limit 1), false) as deployed`,
};

/** What a run has made of its machine until now. @throws NOT_FOUND */
export async function standingOfRun(db: Executor, runId: string): Promise<Standing> {
  const remains = await remainsOfRun(db, await getRun(db, runId));
  const [row] = await db.query<{ deployed: boolean }>(deployed, [runId]);
  return { remains, deployed: row?.deployed === true };
}
