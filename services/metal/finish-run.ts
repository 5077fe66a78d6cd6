/**
 * The end of a run. What is left of the machine is decided here, from the commands that were handed out and the evidence that is stored
 * (domain/metal/run-ends.ts); what the caller says can make it worse, never better (M49). The machine's state, its identity and the run's row
 * change in one transaction.
 */
import { commandStates } from '../../domain/commands/states.ts';
import { isBusyState, type MachineState } from '../../domain/metal/life-cycle.ts';
import { type DestructiveFact, endMove, type Remains, remainsOf, worseRemains } from '../../domain/metal/run-ends.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { appendAudit } from '../audit.ts';
import { applyMove, closeEntriesOf, endIdentityOf, endRamdiskOf, type LockedMachine, lockMachine, quarantineLocked } from './moves.ts';
import { commandsBegin, getRun, isOfRun, lockRun, type StoredRun } from './stored-run.ts';
import type { FinishedRun, FinishRunInput } from './types.ts';

/**
 * A command never began when it was refused, never had a place in the log, or was taken back while nobody was there to take it. One that
 * was taken back while a session of the machine stood may have been handed out the moment before: it counts as begun.
 */
const destructive = {
  name: 'metal-destructive',
  text: `select c.kind, row_number() over (order by c.seq) as "order",
           (c.seq < 0 or c.state = ${commandStates.rejected}
             or (c.state in (${commandStates.open}, ${commandStates.expired}, ${commandStates.cancelled}) and c.acked_at is null
                 and not exists (select from node_sessions s where s.node_id = c.node_id and coalesce(s.ended_at, 'infinity') >= c.created_at)
                 and not exists (select from node_results r where r.command_id = c.id))) as "neverBegan",
           exists (select from metal_evidence e where e.command_id = c.id and e.kind = 'erase' and e.complete) as proven
         from node_commands c
         where c.node_id = $1 and ${isOfRun(2)} 
           and (c.kind in ('disk.wipe', 'deploy.image', 'boot.kexec') or (c.kind = 'driver.invoke' and c.id !~ '/ask-(ramdisk|node)[.][0-9]+$'))
         order by c.seq`,
};

/** What is left of the machine if the run ended now. */
export async function remainsOfRun(db: Executor, run: Pick<StoredRun, 'id' | 'machineId' | 'workflowId'>): Promise<Remains> {
  return remainsOf(await db.query<DestructiveFact>(destructive, [run.machineId, commandsBegin(run)]));
}

const end = {
  name: 'metal-run-end',
  text: `update metal_runs set state = $2, remains = $3, end_reason = $4, ended_at = $5, ended_by = $6 where id = $1 and state = 'open' returning id`,
};
const keepProfile = { name: 'machines-profile', text: 'update machines set profile_name = $2 where id = $1' };

/**
 * Ends a run. Repeated, it answers how it ended.
 *
 * @throws NOT_FOUND; CONFLICT when the machine changed meanwhile
 */
export async function finishRun(db: Database, input: FinishRunInput): Promise<FinishedRun> {
  const { machineId } = await getRun(db, input.runId);
  return db.transaction(async (tx) => {
    const machine = await lockMachine(tx, machineId);
    const run = await lockRun(tx, input.runId);
    if (run.state !== 'open') return { runId: run.id, end: run.state, remains: run.remains, machineState: machine.state, existing: true };
    const remains = input.end === 'done' ? null : worseRemains(await remainsOfRun(tx, run), input.remains ?? 'untouched');
    await closeEntriesOf(tx, machineId, input.now);
    const node = await endRamdiskOf(tx, machine.node, { reason: `run ${run.id} ended`, now: input.now });
    const machineState = await moveAtEnd(tx, { ...machine, node }, { run, input, remains });
    await tx.query(end, [run.id, input.end, remains, input.reason, instant(input.now), input.actor]);
    await announce(tx, machine, { run, input, remains });
    return { runId: run.id, end: input.end, remains, machineState, existing: false };
  });
}

interface Ending {
  readonly run: StoredRun;
  readonly input: FinishRunInput;
}

async function moveAtEnd(
  tx: Executor,
  machine: LockedMachine,
  { run, input, remains }: Ending & { remains: Remains | null },
): Promise<MachineState> {
  const { actor, now } = input;
  const moved = isBusyState(machine.state);
  const move = endMove({ kind: run.kind, end: input.end, remains, moved });
  if (move === null) return machine.state;
  const details = { run: run.id, end: input.end, remains: remains ?? null };
  const reason = input.reason === '' ? `${run.kind} run ${run.id} ${input.end}` : input.reason;
  if (move === 'quarantine') return (await quarantineLocked(tx, machine, { actor, reason, details, now })) ?? machine.state;
  // REV-005: a machine that is retired speaks for nobody any more.
  if (move === 'retired' && machine.node.state !== 'retired')
    await endIdentityOf(tx, machine.node, { state: 'retired', reason: 'machine retired', now });
  if (move === 'provisioned') await tx.query(keepProfile, [machine.id, run.profile?.name ?? '']);
  return (await applyMove(tx, machine, { move, before: run.machineState, actor, reason, details, now })) ?? machine.state;
}

async function announce(
  tx: Executor,
  machine: LockedMachine,
  { run, input, remains }: Ending & { remains: Remains | null },
): Promise<void> {
  const details = { run: run.id, kind: run.kind, end: input.end, remains, reason: input.reason, batch: run.batchId };
  const event = { key: `run/${run.id}/ended`, actor: input.actor, action: `machine.run.${input.end}`, subject: machine.id };
  await appendAudit(tx, { ...event, tenant: machine.tenantId, details }, input.now);
}
