/**
 * The beginning of a run: the machine is claimed, and what will be done to it is decided and written down (BAT-030). Two askers never get
 * one machine: its row is locked, its state is changed by one conditional UPDATE, and an index allows it one open run (M33, H-20).
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { moveMachine } from '../../domain/metal/life-cycle.ts';
import { powerPlan } from '../../domain/metal/plan.ts';
import type { Profile } from '../../domain/metal/profile.ts';
import { claimOf, type RunKind, staysIn } from '../../domain/metal/run-ends.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { appendAudit } from '../audit.ts';
import { applyMove, endIdentityOf, type LockedMachine, lockMachine } from './moves.ts';
import { assertProfile } from './profile-text.ts';
import { assertSigned, machineState } from './refusals.ts';
import { noAgent } from './scope.ts';
import { findOpenRun, findRunOfWorkflow, type KeptPlan, planOf, type StoredRun } from './stored-run.ts';
import type { BmcView, PlanRunInput, RunPlan } from './types.ts';

/** Of the workflow's run: asked again, the same. */
export const runIdOf = (workflowRunId: string): string =>
  createHash('sha256').update(`metal-run\0${workflowRunId}`).digest('hex').slice(0, 12);

/** Kinds that touch the controller with a key that is known, or the machine through it. */
const needsPin: Readonly<Record<RunKind, boolean>> = Object.freeze({ provision: true, retire: true, inspect: false, 'rotate-bmc': true });
const needsProfile: Readonly<Record<RunKind, boolean>> = Object.freeze({
  provision: true,
  retire: true,
  inspect: false,
  'rotate-bmc': false,
});

const bmcOf = {
  name: 'metal-bmc',
  text: `select address, system_id as "systemId", credential_ref as "credentialRef", pin_sha256 as "pinSha256" from machine_bmcs where machine_id = $1`,
};
const agentsOf = {
  name: 'metal-plan-agents',
  text: `select id from nodes where role = 'site' and state = 'active' and site_id = $1 and tenant_id = $2 order by id`,
};
const lastProfile = {
  name: 'metal-last-profile',
  text: `select profile from metal_runs where machine_id = $1 and profile is not null order by started_at desc limit 1`,
};
const insert = {
  name: 'metal-run-insert',
  text: `insert into metal_runs (id, machine_id, kind, workflow_id, workflow_run_id, machine_state, actor, reason, profile, plan, started_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing returning id`,
};

/**
 * Claims a machine for a run and plans it. The same workflow run again is the same plan.
 *
 * @throws NOT_FOUND for an unknown machine; CONFLICT (machine-busy) naming the run that has it; INVALID_STATE (machine-state, not-inspected,
 *   no-site-agent, node-retired); INVALID_INPUT for the profile, the actor or the reason
 */
export async function planRun(db: Database, input: PlanRunInput): Promise<RunPlan> {
  const { machineId, kind, workflowId, workflowRunId, actor, reason, now } = input;
  assertSigned(`a ${kind} run`, { actor, reason });
  const given = input.profile === undefined || input.profile === null ? null : assertProfile(input.profile, kind);
  return db.transaction(async (tx) => {
    const machine = await lockMachine(tx, machineId);
    const before = await findRunOfWorkflow(tx, workflowRunId);
    if (before !== undefined) return planOf(tx, assertSame(before, input), true);
    await assertFree(tx, machine);
    assertClaimable(machine, kind);
    const profile = await profileFor(tx, { machine, kind, given });
    const plan = await planFor(tx, { machine, kind, profile });
    const run: StoredRun = {
      id: runIdOf(workflowRunId),
      machineId,
      kind,
      workflowId,
      workflowRunId,
      state: 'open',
      remains: null,
      endReason: '',
      machineState: machine.state,
      actor,
      reason,
      profile,
      plan,
      batchId: null,
      startedAt: now,
      endedAt: null,
      endedBy: '',
    };
    await store(tx, machine, run);
    return planOf(tx, run, false);
  });
}

function assertSame(run: StoredRun, { machineId, kind, workflowId }: PlanRunInput): StoredRun {
  if (run.machineId === machineId && run.kind === kind && run.workflowId === workflowId) return run;
  throw new ControlError(
    'CONFLICT',
    `workflow run ${run.workflowRunId} began ${run.kind} of ${run.machineId}, and asks for ${kind} of ${machineId}`,
    {
      details: { reason: 'run-differs', runId: run.id },
    },
  );
}

async function assertFree(tx: Executor, { id }: LockedMachine): Promise<void> {
  const open = await findOpenRun(tx, id);
  if (open !== undefined) throw busy(id, open);
}

const busy = (machineId: string, { id, kind, workflowId }: Pick<StoredRun, 'id' | 'kind' | 'workflowId'>): ControlError<'CONFLICT'> =>
  new ControlError('CONFLICT', `machine ${machineId} is in ${kind} run ${id} (${workflowId}): wait for its end, or cancel it`, {
    details: { reason: 'machine-busy', machineId, runId: id, workflowId },
  });

function assertClaimable({ id, state, stateReason, node }: LockedMachine, kind: RunKind): void {
  const move = claimOf[kind];
  const moved = move !== null && moveMachine(move, state) !== null;
  if (!moved && !staysIn[kind].includes(state)) {
    throw machineState(
      `machine ${id} is ${state}${state === 'quarantined' ? ` (${stateReason})` : ''}: a ${kind} run cannot begin from there`,
      {
        machineId: id,
        state,
        kind,
      },
    );
  }
  if (node.state === 'retired')
    throw new ControlError('INVALID_STATE', `the node of machine ${id} is deleted`, { details: { reason: 'node-retired', machineId: id } });
}

interface ProfileQuestion {
  readonly machine: LockedMachine;
  readonly kind: RunKind;
  readonly given: Profile | null;
}

/** A retirement boots what the machine was provisioned with, unless it is told otherwise. */
async function profileFor(tx: Executor, { machine, kind, given }: ProfileQuestion): Promise<Profile | null> {
  if (given !== null || !needsProfile[kind]) return given;
  const [last] = kind === 'retire' ? await tx.query<{ profile: unknown }>(lastProfile, [machine.id]) : [];
  if (last !== undefined) return assertProfile(last.profile, kind);
  const why = kind === 'retire' ? `machine ${machine.id} never had a run with a profile: ` : '';
  throw new ControlError('INVALID_INPUT', `${why}a ${kind} run needs a profile, which says what the machine boots into`, {
    details: { reason: 'profile-needed', machineId: machine.id },
  });
}

interface PlanQuestion {
  readonly machine: LockedMachine;
  readonly kind: RunKind;
  readonly profile: Profile | null;
}

async function planFor(tx: Executor, { machine, kind, profile }: PlanQuestion): Promise<KeptPlan> {
  const { id, siteId, rack, tenantId } = machine;
  const [bmc] = await tx.query<Omit<BmcView, 'profile'>>(bmcOf, [id]);
  if (bmc === undefined) throw new ControlError('INTERNAL', `machine ${id} has no row of its controller`);
  if (bmc.pinSha256 === null && needsPin[kind]) {
    throw new ControlError('INVALID_STATE', `the key of the controller of machine ${id} is not known yet: inspect it first`, {
      details: { reason: 'not-inspected', machineId: id },
    });
  }
  const agents = (await tx.query<{ id: string }>(agentsOf, [siteId, tenantId])).map((agent) => agent.id);
  if (agents.length === 0) throw noAgent(siteId, id);
  const actions = powerPlan(kind, profile === null ? {} : profile.boot);
  return { siteId, rack, tenantId, bmc, agents, actions };
}

async function store(tx: Executor, machine: LockedMachine, run: StoredRun): Promise<void> {
  const { id, machineId, kind, workflowId, actor, reason, startedAt: now } = run;
  // What quarantined or revoked it ended its identity; the ramdisk needs a node that may join.
  if (kind !== 'inspect' && kind !== 'rotate-bmc' && machine.node.state !== 'active')
    await endIdentityOf(tx, machine.node, { state: 'active', reason: `run ${id}`, now });
  const values = [
    id,
    machineId,
    kind,
    workflowId,
    run.workflowRunId,
    machine.state,
    actor,
    reason,
    json(run.profile),
    json(run.plan),
    instant(now),
  ];
  const [row] = await tx.query<{ id: string }>(insert, values);
  if (row === undefined) throw busy(machineId, (await findOpenRun(tx, machineId)) ?? run);
  const move = claimOf[kind];
  const details = { run: id, workflow: workflowId, kind, profile: run.profile?.name ?? null };
  if (move !== null) await applyMove(tx, machine, { move, actor, reason, details, now });
  await appendAudit(
    tx,
    {
      key: `run/${id}/started`,
      actor,
      action: 'machine.run.started',
      subject: machineId,
      tenant: machine.tenantId,
      details: { ...details, reason },
    },
    now,
  );
}

const json = (value: unknown): string | null => (value === null ? null : JSON.stringify(value));
