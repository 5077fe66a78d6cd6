/** What is known of a machine at this moment, for a step that has to decide: observed states, never what somebody intended. Reads only. */
import type { Remains } from '../../domain/metal/run-ends.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { findBootEntry } from './boot-entries.ts';
import { remainsOfRun } from './finish-run.ts';
import { getMachine } from './rows.ts';
import { getRun, runSummary } from './stored-run.ts';
import type { DiskView, MachineObservation, NodeObservation, RunFacts } from './types.ts';

const node = {
  name: 'metal-node-facts',
  text: `select n.state, n.role, n.identity_generation as generation,
           (select s.role from node_presence p join node_sessions s on s.id = p.session_id
              join node_certs sc on sc.issuer = s.cert_issuer and sc.serial = s.cert_serial
            where p.node_id = n.id and s.ended_at is null and p.last_seen_at >= $2 and sc.generation = n.identity_generation) as "connectedRole",
           c.role as "certificateRole", c.issued_at as "certifiedAt"
         from nodes n left join lateral (select role, issued_at from node_certs where node_id = n.id and generation = n.identity_generation
                                           and cert_der is not null and revoked_at is null order by issued_at desc limit 1) c on true
         where n.id = $1`,
};
const macs = {
  name: 'metal-mac-facts',
  text: `select distinct value from machine_identities where machine_id = $1 and source like '%mac' and source <> 'redfish-manager-mac' order by value`,
};
const disks = {
  name: 'metal-disk-facts',
  text: `select disk_key as key, name, serial, wwn, model, size_bytes as "sizeBytes", transport, rotational, origin, seen_at as "seenAt"
         from machine_disks where machine_id = $1 and origin = 'ramdisk' and seen_at >= $2 order by disk_key`,
};

const nodeFacts = async (db: Executor, machineId: string, now: number): Promise<NodeObservation> => {
  const [row] = await db.query<NodeObservation>(node, [machineId, instant(now - connectedWithinMs)]);
  return row ?? { state: 'unknown', role: 'node', generation: 0, connectedRole: null, certificateRole: null, certifiedAt: null };
};

/** Everything that a run's step asks for. @throws NOT_FOUND */
export async function readRunFacts(db: Executor, runId: string, now: number): Promise<RunFacts> {
  const run = await getRun(db, runId);
  const { machineId } = run;
  return {
    run: runSummary(run),
    isOpen: run.state === 'open',
    machine: await getMachine(db, machineId),
    profile: run.profile,
    actions: run.plan.actions,
    macAddresses: (await db.query<{ value: string }>(macs, [machineId])).map(({ value }) => value),
    disks: await db.query<DiskView>(disks, [machineId, instant(run.startedAt)]),
    bootEntry: await findBootEntry(db, runId),
    node: await nodeFacts(db, machineId, now),
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
