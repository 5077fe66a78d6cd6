/** What operators look at of runs: their steps, the commands they sent with what was answered, their evidence. Reads only. */
import { commandStateName } from '../../domain/commands/states.ts';
import { unknownRun } from './refusals.ts';
import { commandsBegin, isOfRun, shownRunColumns } from './stored-run.ts';
import { type Reader, type Row, seen, tenantsOf, toProgress } from './view-rows.ts';
import type { RunCommand, RunDetail, RunSummary, SeenTenants } from './view-types.ts';

const runSelect = `select ${shownRunColumns} from metal_runs r`;

export const runsOf = (db: Reader, machineId: string, limit: number): Promise<RunSummary[]> =>
  db.query<RunSummary>({ text: `${runSelect} where r.machine_id = $1 order by r.started_at desc, r.id limit $2` }, [machineId, limit]);

export interface RunPage {
  readonly tenants: SeenTenants;
  readonly machineId?: string | undefined;
  readonly state?: RunSummary['state'] | undefined;
  readonly limit: number;
}

/** The newest first. */
export const listRuns = (db: Reader, { tenants, machineId, state, limit }: RunPage): Promise<RunSummary[]> =>
  db.query<RunSummary>(
    {
      text: `${runSelect} join nodes n on n.id = r.machine_id
             where ${seen} and ($2::text is null or r.machine_id = $2) and ($3::text is null or r.state = $3)
             order by r.started_at desc, r.id limit $4`,
    },
    [tenantsOf(tenants), machineId ?? null, state ?? null, limit],
  );

/** @throws NOT_FOUND (unknown-run), also for another tenant's */
export async function getRun(db: Reader, id: string, tenants: SeenTenants): Promise<RunDetail> {
  const [run] = await db.query<RunSummary & { siteId: string; bmc: string | null }>(
    {
      text: `select ${shownRunColumns}, m.site_id as "siteId", b.address as bmc from metal_runs r
             join nodes n on n.id = r.machine_id join machines m on m.id = r.machine_id left join machine_bmcs b on b.machine_id = r.machine_id
             where ${seen} and r.id = $2`,
    },
    [tenantsOf(tenants), id],
  );
  if (run === undefined) throw unknownRun(id);
  return {
    ...run,
    bmc: run.bmc ?? '',
    steps: await db.query(
      {
        text: `select step, attempt, state, detail, actor, started_at as "startedAt", ended_at as "endedAt"
               from metal_run_steps where run_id = $1 order by started_at, step, attempt`,
      },
      [id],
    ),
    commands: await commandsOf(db, run),
    evidence: await db.query(
      {
        text: `select id, kind, command_id as "commandId", complete, finished_at as "finishedAt"
               from metal_evidence where run_id = $1 order by finished_at, id`,
      },
      [id],
    ),
  };
}

/** Of one run; more would be a run without end. */
const mostCommands = 500;

export const runCommands = {
  name: 'run-views-commands',
  text: `select c.id, c.node_id, c.kind, c.state, c.created_at, c.finished_at, c.reject_reason, r.error_code, r.error_message,
                p.done, p.total, p.note, p.at, p.first_done, p.first_at
         from node_commands c left join node_results r on r.command_id = c.id left join command_progress p on p.command_id = c.id
         where ${isOfRun(1)} order by c.created_at, c.id limit $2`,
};

async function commandsOf(db: Reader, run: Pick<RunSummary, 'id' | 'workflowId'>): Promise<RunCommand[]> {
  const rows = await db.query<Row>(runCommands, [commandsBegin(run), mostCommands]);
  return rows.map((row) => ({
    id: row.id,
    nodeId: row.node_id,
    kind: row.kind,
    state: commandStateName(row.state) ?? 'open',
    createdAt: row.created_at,
    finishedAt: row.finished_at,
    answer: row.reject_reason ?? [row.error_code, row.error_message].filter((part) => (part ?? '') !== '').join(': '),
    ...(row.at === null ? {} : { progress: toProgress(row) }),
  }));
}

export interface RunDocument {
  readonly kind: 'erase' | 'deploy';
  readonly commandId: string;
  readonly body: Uint8Array;
  readonly signature: Uint8Array;
}

/** What ramdisks signed in a run, in the order of time. */
export const evidenceOf = (db: Reader, runId: string): Promise<RunDocument[]> =>
  db.query<RunDocument>(
    {
      text: `select kind, command_id as "commandId", body, signature from metal_evidence where run_id = $1 order by finished_at, id`,
    },
    [runId],
  );
