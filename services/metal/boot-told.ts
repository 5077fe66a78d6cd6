/**
 * What the boot servers of sites were told of machines, read from the log of commands, and what each of them has to be told now: the
 * decision is domain/metal/boot-told.ts. Reads only; whoever signs sends it (activities/boots.ts).
 *
 * The log keeps a command for 30 days. What was told before is not on record any more: then a machine under maintenance is told to be held once
 * more, and nothing is said of any other.
 */
import { createHash } from 'node:crypto';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { type CommandStateNumber, commandStates } from '../../domain/commands/states.ts';
import {
  type BootCommandFact,
  type BootedMachine,
  type BootServerFacts,
  judgeTelling,
  quickTries,
  type Telling,
  type TellingRun,
} from '../../domain/metal/boot-told.ts';
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { minute } from '../../domain/time.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { CommandBodySchema, protocolRegistry, site } from '../../proto/index.ts';

/** Of one machine and one agent of its site. */
export interface BootTelling {
  readonly machineId: string;
  readonly siteId: string;
  readonly generation: number;
  readonly agentId: string;
  /** The workflow of the open run that boots the machine; null: there is none. Where it lives, nothing is to be told. */
  readonly runWorkflowId: string | null;
  readonly telling: Exclude<Telling, { readonly kind: 'settled' }>;
}

/** A command to an agent, as the queue takes it. */
export interface BootOrder {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: 'boot.cleanUp';
  /** An encoded google.protobuf.Any. */
  readonly payload: Uint8Array;
}

interface MachineRow {
  readonly id: string;
  readonly siteId: string;
  readonly tenantId: string;
  readonly state: MachineState;
  readonly generation: number;
  readonly tombstone: BootedMachine['tombstone'];
  readonly macAddresses: readonly string[];
  readonly runWorkflowId: string | null;
}

/** Of the index node_commands_of_boots. */
const isOfBoot = `c.id like 'machine/%' and c.kind in ('boot.prepareRamdisk', 'boot.cleanUp')`;

/** What has just changed comes first; the rest in an order that is another one at each look, so that everyone has his turn. */
const looked = {
  name: 'metal-boots-machines',
  text: `select m.id, m.site_id as "siteId", n.tenant_id as "tenantId", m.state, m.generation, r.workflow_id as "runWorkflowId",
           coalesce((select case when bool_or(t.lifted_at is null) then 'stands' else 'lifted' end from machine_tombstones t
                     where t.machine_id = m.id having count(*) > 0), 'none') as tombstone,
           array(select distinct value from machine_identities where machine_id = m.id and m.state <> 'deleted' and source like '%mac'
                   and source <> 'redfish-manager-mac' order by value) as "macAddresses"
         from machines m join nodes n on n.id = m.id
         left join metal_runs r on r.machine_id = m.id and r.state = 'open' and r.kind in ('provision', 'retire')
         where case when $1::text[] is not null then m.id = any($1)
               else m.state in ('quarantined', 'provisioning', 'retiring')
                 or exists (select from node_commands c where ${isOfBoot} and split_part(c.id, '/', 2) = m.id) end
         order by (m.state_since > $2) desc, md5(m.id || $3), m.id limit $4`,
};

export const toldCommands = {
  name: 'metal-boots-commands',
  text: `select split_part(c.id, '/', 2) as "machineId", c.id, c.node_id as "agentId", c.state, c.body, c.created_at as "createdAt", c.deadline,
           coalesce(c.finished_at, c.created_at) as "endedAt", coalesce(r.error_code, '') as "errorCode",
           coalesce(nullif(r.error_message, ''), nullif(r.error_code, ''), c.reject_reason, '') as error
         from node_commands c left join node_results r on r.command_id = c.id
         where ${isOfBoot} and split_part(c.id, '/', 2) = any($1::text[]) order by c.node_id, c.seq`,
};

interface CommandRow {
  readonly machineId: string;
  readonly id: string;
  readonly agentId: string;
  readonly state: CommandStateNumber;
  readonly body: Uint8Array;
  readonly createdAt: number;
  readonly deadline: number;
  readonly endedAt: number;
  readonly errorCode: string;
  readonly error: string;
}

const agents = {
  name: 'metal-boots-agents',
  text: `select n.id, n.site_id as "siteId", n.tenant_id as "tenantId", n.identity_generation as generation,
           coalesce(s.ended_at is null and s.id is not null and p.last_seen_at >= $2, false) as connected
         from nodes n left join node_presence p on p.node_id = n.id left join node_sessions s on s.id = p.session_id
         where n.role = 'site' and n.state = 'active' and n.site_id = any($1::text[]) order by n.id`,
};

interface AgentRow {
  readonly id: string;
  readonly siteId: string;
  readonly tenantId: string;
  readonly generation: number;
  readonly connected: boolean;
}

const runs = {
  name: 'metal-boots-runs',
  text: `select r.id, r.kind, r.state as "end", r.remains,
           coalesce((select e.kind = 'deploy' and e.complete from metal_evidence e where e.run_id = r.id
                     order by e.finished_at desc, e.kind limit 1), false) as deployed
         from metal_runs r where r.id = any($1::text[])`,
};

/** Moved within this time: an operator has just ended something. */
const freshMs = 30 * minute;
/** Beyond its deadline a command is still somebody's for as long as it may take; then nobody knows what became of it. */
const beyondDeadlineMs = 10 * minute;

export interface LookOptions {
  readonly now: number;
  readonly limit: number;
  /** Only these; absent: those whose boot servers may have to be told something. */
  readonly machineIds?: readonly string[];
  /** Another one, another order of those that are many. */
  readonly turn?: string;
}

/** Who has to be told something, is being told, or cannot be. Machines that are settled with an agent are not in it. */
export async function tellingsOf(db: Executor, options: LookOptions): Promise<BootTelling[]> {
  return (await look(db, options)).map(({ found }) => found);
}

export interface UntoldBoots {
  readonly agentId: string;
  readonly connected: boolean;
  /** The first few by their names, of all. */
  readonly machineIds: readonly string[];
  readonly machines: number;
  /** Attempts since the last that was done, of the machine with the most. */
  readonly failed: number;
  /** What the agent said to the last of them; empty where it said nothing. */
  readonly error: string;
}

const shownMachines = 5;

/** Agents whose boot servers cannot be told: they are away, or what they were told failed again and again. Machines in a run are its to tell. */
export async function listUntoldBoots(db: Executor, page: { readonly now: number; readonly limit: number }): Promise<UntoldBoots[]> {
  const found = (await tellingsOf(db, page)).filter(isUntold);
  return [...groupBy(found, ({ agentId }) => agentId)].map(([agentId, list]) => {
    const worst = list.reduce((one, other) => (other.telling.failed > one.telling.failed ? other : one));
    const machineIds = list.map(({ machineId }) => machineId).toSorted();
    return {
      agentId,
      connected: list.every(({ telling }) => telling.kind !== 'away'),
      machineIds: machineIds.slice(0, shownMachines),
      machines: machineIds.length,
      failed: worst.telling.failed,
      error: worst.telling.error,
    };
  });
}

type Untold = BootTelling & { readonly telling: Extract<Telling, { readonly kind: 'pause' | 'away' }> };

const isUntold = (one: BootTelling): one is Untold =>
  (one.telling.kind === 'away' && one.runWorkflowId === null) || (one.telling.kind === 'pause' && one.telling.failed >= quickTries);

/** What is to be sent now, of machines whose generation is still the one that was judged. */
export async function bootOrders(
  db: Executor,
  judged: readonly { readonly machineId: string; readonly generation: number }[],
  now: number,
): Promise<BootOrder[]> {
  const asked = new Map(judged.map(({ machineId, generation }) => [machineId, generation]));
  const seen = await look(db, { now, limit: asked.size, machineIds: [...asked.keys()] });
  return seen.flatMap(({ found, order }) => (order === null || asked.get(found.machineId) !== found.generation ? [] : [order]));
}

async function look(db: Executor, { now, limit, machineIds, turn = '' }: LookOptions): Promise<Judged[]> {
  const machines = await db.query<MachineRow>(looked, [machineIds ?? null, instant(now - freshMs), turn, limit]);
  const told = groupBy(
    (await db.query<CommandRow>(toldCommands, [machines.map(({ id }) => id)])).map(readCommand),
    ({ row }) => row.machineId,
  );
  const servers = await db.query<AgentRow>(agents, [[...new Set(machines.map(({ siteId }) => siteId))], instant(now - connectedWithinMs)]);
  const lastRuns = new Map([...told].map(([machineId, list]) => [machineId, lastRunOf(list)]));
  const found = await db.query<TellingRun>(runs, [[...lastRuns.values()].flatMap((id) => id ?? [])]);
  const runById = new Map(found.map((run) => [run.id, run]));
  return machines.flatMap((machine) => {
    const lastRun = runById.get(lastRuns.get(machine.id) ?? '') ?? null;
    const own = servers.filter(({ siteId, tenantId }) => siteId === machine.siteId && tenantId === machine.tenantId);
    return own.flatMap((agent) => {
      const facts = factsOf(agent, { told: told.get(machine.id) ?? [], machine, now });
      return judged(machine, { agent, facts, lastRun, now });
    });
  });
}

interface Judged {
  readonly found: BootTelling;
  /** Where it is to be told now. */
  readonly order: BootOrder | null;
}

interface Judging {
  readonly agent: AgentRow;
  readonly facts: BootServerFacts;
  readonly lastRun: TellingRun | null;
  readonly now: number;
}

function judged(machine: MachineRow, { agent, facts, lastRun, now }: Judging): Judged[] {
  const { id: machineId, siteId, state, generation, tombstone, macAddresses, runWorkflowId } = machine;
  const booted = { state, tombstone, hasAddress: macAddresses.length > 0, lastRun, isInRun: runWorkflowId !== null };
  const telling = judgeTelling(booted, facts, now);
  if (telling.kind === 'settled') return [];
  const order = telling.kind === 'tell' ? orderOf(machine, agent.id, telling) : null;
  return [{ found: { machineId, siteId, generation, agentId: agent.id, runWorkflowId, telling }, order }];
}

/** The machine and the state it is about: a later state has other ids, and the same difference seen twice has the same one. */
const ownPrefix = ({ id, generation }: Pick<MachineRow, 'id' | 'generation'>): string => `machine/${id}/boot/${generation}/`;

function orderOf(machine: MachineRow, agentId: string, { answer, runId, n }: Extract<Telling, { readonly kind: 'tell' }>): BootOrder {
  const { id: nodeId, macAddresses } = machine;
  const told = answer === 'local' ? site.BootAnswer.LOCAL : site.BootAnswer.HOLD;
  const payload = create(site.BootCleanUpSchema, { nodeId, runId, macAddresses: [...macAddresses], answer: told });
  // In full it would not fit beside a machine's id of the same length.
  const agent = createHash('sha256').update(agentId).digest('hex').slice(0, 12);
  return {
    id: `${ownPrefix(machine)}${agent}.${n}`,
    nodeId: agentId,
    kind: 'boot.cleanUp',
    payload: toBinary(AnySchema, anyPack(site.BootCleanUpSchema, payload)),
  };
}

interface ReadCommand {
  readonly row: CommandRow;
  readonly kind: BootCommandFact['kind'];
  readonly runId: string;
  readonly answer: BootCommandFact['answer'];
  /** Identity of the agent that it was signed for. */
  readonly generation: number;
}

const answers = Object.freeze({ [site.BootAnswer.LOCAL]: 'local', [site.BootAnswer.HOLD]: 'hold' } as const);

function readCommand(row: CommandRow): ReadCommand {
  const { payload, generation } = fromBinary(CommandBodySchema, row.body);
  const message = payload === undefined ? undefined : anyUnpack(payload, protocolRegistry);
  const common = { row, generation: Number(generation) };
  if (message?.$typeName === site.BootPrepareRamdiskSchema.typeName)
    return { ...common, kind: 'boot.prepareRamdisk', runId: (message as site.BootPrepareRamdisk).runId, answer: null };
  const { runId = '', answer = site.BootAnswer.UNSPECIFIED } = (message ?? {}) as Partial<site.BootCleanUp>;
  return { ...common, kind: 'boot.cleanUp', runId, answer: answer === site.BootAnswer.UNSPECIFIED ? null : answers[answer] };
}

const isOwnId = (id: string): boolean => id.split('/')[2] === 'boot';

/** Of the latest command of a run that a boot server may have taken. */
function lastRunOf(told: readonly ReadCommand[]): string | undefined {
  const ofRuns = told.filter(({ row }) => !isOwnId(row.id) && row.state !== commandStates.rejected);
  return ofRuns.toSorted((a, b) => a.row.createdAt - b.row.createdAt).at(-1)?.runId;
}

function factsOf(
  agent: AgentRow,
  { told, machine, now }: { readonly told: readonly ReadCommand[]; readonly machine: MachineRow; readonly now: number },
): BootServerFacts {
  const own = ownPrefix(machine);
  const facts = told
    .filter(({ row }) => row.agentId === agent.id)
    .map(({ row, kind, runId, answer, generation }) => ({
      kind,
      runId,
      answer,
      end: endOf(row, now),
      endedAt: row.endedAt,
      error: row.error,
      isOfThisIdentity: generation === agent.generation,
      isOwn: row.id.startsWith(own),
    }));
  return { connected: agent.connected, told: facts };
}

/** One that was taken back or has expired may have been taken the moment before. */
function endOf({ state, errorCode, deadline }: CommandRow, now: number): BootCommandFact['end'] {
  if (state === commandStates.done) return 'done';
  if (state === commandStates.rejected) return 'never';
  if (errorCode === 'UNSUPPORTED') return 'no-server';
  const isUnderWay = state === commandStates.open || state === commandStates.acked;
  return isUnderWay && now < deadline + beyondDeadlineMs ? 'pending' : 'unknown';
}

function groupBy<T>(list: readonly T[], keyOf: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of list) groups.set(keyOf(one), [...(groups.get(keyOf(one)) ?? []), one]);
  return groups;
}
