/** Rows of runs, and the plan that is kept in them: what was decided when the run began, from which everything later is made again. */
import { commandKinds } from '../../domain/commands/kinds.ts';
import { runPrefix } from '../../domain/metal/acts.ts';
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import type { PlannedAction } from '../../domain/metal/plan.ts';
import { type Profile, profileCommandKinds } from '../../domain/metal/profile.ts';
import { isStepKind, ownStepsOf } from '../../domain/metal/profile-steps.ts';
import type { Remains, RunKind } from '../../domain/metal/run-ends.ts';
import { runSteps, stepsOf } from '../../domain/metal/steps.ts';
import type { Executor } from '../../drizzle/client.ts';
import { unknownRun } from './refusals.ts';
import { metalBatchScope, type PlannedTarget, plannedLeaves } from './scope.ts';
import { stepLeaves } from './step-payloads.ts';
import type { BmcView, PlannedStep, RunPlan, RunState, RunSummary, ScopeLeafInput } from './types.ts';

/** The column `plan`: JSON. */
export interface KeptPlan {
  readonly siteId: string;
  readonly rack: string;
  readonly tenantId: string;
  readonly bmc: Omit<BmcView, 'profile'>;
  readonly agents: readonly string[];
  readonly actions: readonly PlannedAction[];
}

export interface StoredRun {
  readonly id: string;
  readonly machineId: string;
  readonly kind: RunKind;
  readonly workflowId: string;
  readonly workflowRunId: string;
  readonly state: RunState;
  readonly remains: Remains | null;
  readonly endReason: string;
  /** Before the run. */
  readonly machineState: MachineState;
  readonly actor: string;
  readonly reason: string;
  readonly profile: Profile | null;
  readonly plan: KeptPlan;
  readonly batchId: string | null;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly endedBy: string;
}

/** What operators look at of a run `r`; its plan and its profile are large. */
export const shownRunColumns = `r.id, r.machine_id as "machineId", r.kind, r.workflow_id as "workflowId", r.state, r.remains,
  r.end_reason as "endReason", r.actor, r.reason, r.batch_id as "batchId", r.started_at as "startedAt", r.ended_at as "endedAt",
  r.ended_by as "endedBy"`;
export const runColumns = `${shownRunColumns}, r.workflow_run_id as "workflowRunId", r.machine_state as "machineState", r.profile, r.plan`;

const byId = { name: 'metal-run', text: `select ${runColumns} from metal_runs r where r.id = $1` };
const byWorkflow = { name: 'metal-run-of-workflow', text: `select ${runColumns} from metal_runs r where r.workflow_run_id = $1` };
const openOf = { name: 'metal-run-open', text: `select ${runColumns} from metal_runs r where r.machine_id = $1 and r.state = 'open'` };
const lockById = { name: 'metal-run-lock', text: `select ${runColumns} from metal_runs r where r.id = $1 for no key update` };

/** @throws NOT_FOUND */
export async function getRun(db: Executor, runId: string): Promise<StoredRun> {
  const [run] = await db.query<StoredRun>(byId, [runId]);
  if (run === undefined) throw unknownRun(runId);
  return run;
}

/** To the end of the transaction; its machine is locked before. @throws NOT_FOUND */
export async function lockRun(tx: Executor, runId: string): Promise<StoredRun> {
  const [run] = await tx.query<StoredRun>(lockById, [runId]);
  if (run === undefined) throw unknownRun(runId);
  return run;
}

export const findRunOfWorkflow = async (db: Executor, workflowRunId: string): Promise<StoredRun | undefined> =>
  (await db.query<StoredRun>(byWorkflow, [workflowRunId]))[0];

export const findOpenRun = async (db: Executor, machineId: string): Promise<StoredRun | undefined> =>
  (await db.query<StoredRun>(openOf, [machineId]))[0];

export const runSummary = (run: StoredRun): RunSummary => ({
  id: run.id,
  machineId: run.machineId,
  kind: run.kind,
  workflowId: run.workflowId,
  state: run.state,
  remains: run.remains,
  endReason: run.endReason,
  profileName: run.profile?.name ?? '',
  batchId: run.batchId,
  actor: run.actor,
  reason: run.reason,
  startedAt: run.startedAt,
  endedAt: run.endedAt,
  endedBy: run.endedBy,
});

/**
 * A condition on the commands `c` of one run, by what their ids begin with: a range of the index node_commands_of_runs, which has the commands
 * of runs and no others. Its value is commandsBegin; the character behind the slash ends the range.
 */
export const isOfRun = (value: number): string => `c.id like 'machine/%' and c.id ~>=~ ($${value} || '/') and c.id ~<~ ($${value} || '0')`;
export const commandsBegin = ({ workflowId, id }: Pick<StoredRun, 'workflowId' | 'id'>): string => runPrefix(workflowId, id);

export const targetOf = ({ id, machineId, plan, profile }: StoredRun): PlannedTarget => ({
  machineId,
  runId: id,
  bmc: plan.bmc,
  httpUrl: profile?.boot.httpUrl,
});

export const plannedSteps = (kind: RunKind, profile: Profile | null): PlannedStep[] =>
  runSteps(kind, profile).map(({ name, sends, deadlineMs, destroys = false }) => ({
    name,
    sends,
    deadlineMs: deadlineMs(profile),
    destroys,
  }));

/**
 * Every leaf of the run (BAT-030, BAT-035): what its steps have declared, the planned actions and the
 * profile's own steps bound to their bytes, nothing else. Made of
 * the plan and of the site's agents as they are now: a batch is made once, right behind the plan.
 *
 * @throws as metalBatchScope
 */
export async function leavesOfStored(tx: Executor, run: StoredRun): Promise<ScopeLeafInput[]> {
  const { kind, machineId, profile, plan } = run;
  const planned = new Set<string>(plan.actions.map((action) => action.kind));
  const kinds = profileCommandKinds(kind === 'provision' ? profile : null, stepsOf[kind]).filter(
    (one) => !planned.has(one) && !isStepKind(one),
  );
  const open = await metalBatchScope(tx, commandKinds, [machineId], kinds);
  const own = kind === 'provision' ? stepLeaves({ machineId, runId: run.id }, ownStepsOf(profile)) : [];
  return [...open, ...plannedLeaves(targetOf(run), plan.actions, plan.agents), ...own];
}

export async function planOf(tx: Executor, run: StoredRun, existing: boolean): Promise<RunPlan> {
  const steps = plannedSteps(run.kind, run.profile);
  const { id: runId, machineId, kind, workflowId, profile, plan } = run;
  return {
    runId,
    machineId,
    kind,
    workflowId,
    ...plan,
    profile,
    steps,
    leaves: await leavesOfStored(tx, run),
    deadlines: Object.fromEntries(steps.map(({ name, deadlineMs }) => [name, deadlineMs])),
    existing,
  };
}
