/** The command ports over PostgreSQL. */

import type { NodeRole } from '../../domain/commands/kinds.ts';
import { commandStateName, commandStates } from '../../domain/commands/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { type CommandStatus, cancelCommand, findCommand, reconcileCommands } from '../../services/command-ends.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { pruneFinished } from '../../services/housekeeping.ts';
import { registerWait, sweepLostCompletions } from '../../services/outbox.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import type { CommandCounts, CommandLogPort, CommandSigningPorts, CommandView } from '../command-ports.ts';
import type { DatabasePorts } from './rotation.ts';

type Poke = (nodeIds: readonly string[]) => void;

/** Ids of one run are its prefix and a node, so each is found by the unique index. */
const counts = {
  name: 'run-counts',
  text: `select c.state, count(*) as commands from nodes n join node_commands c on c.id = $1 || '/' || n.id group by c.state`,
};
const columns = `c.id, c.node_id as "nodeId", c.state, coalesce(nullif(r.error_message, ''), nullif(r.error_code, ''), c.reject_reason, '') as error`;
const list = {
  name: 'run-list',
  text: `select ${columns} from nodes n join node_commands c on c.id = $1 || '/' || n.id left join node_results r on r.command_id = c.id
         where c.state = any($2::smallint[]) order by c.node_id limit $3`,
};
const openStates = [commandStates.open, commandStates.acked];
const failedStates = Object.values(commandStates).filter((state) => state > commandStates.done);

interface Row {
  readonly id: string;
  readonly nodeId: string;
  readonly state: number;
  readonly error: string;
}

const viewOf = ({ id, nodeId, state, error }: Row): CommandView => {
  const name = commandStateName(state);
  if (name === undefined) throw new ControlError('INTERNAL', `command ${id} has state ${state}, which this version does not know`);
  return { id, nodeId, state: name, error };
};

const viewOfStatus = ({ id, nodeId, state, reason, result }: CommandStatus): CommandView => ({
  id,
  nodeId,
  state,
  error: result?.errorMessage || result?.errorCode || reason || '',
});

export function createCommandLog({ db, now, poke }: DatabasePorts & { poke?: Poke }): CommandLogPort {
  const listOf = async (prefix: string, states: readonly number[], limit: number): Promise<CommandView[]> =>
    (await db.query<Row>(list, [prefix, states, limit])).map(viewOf);
  return {
    find: async (commandId) => {
      const status = await findCommand(db, commandId);
      return status === undefined ? undefined : viewOfStatus(status);
    },
    registerWait: async (wait) => {
      try {
        return (await registerWait(db, { ...wait, now: now() })).finished ? 'finished' : 'waiting';
      } catch (error) {
        if (error instanceof ControlError && error.code === 'NOT_FOUND') return 'unknown';
        throw error;
      }
    },
    count: async (prefix) => countsOf(await db.query<{ state: number; commands: number }>(counts, [prefix])),
    failures: (prefix, limit) => listOf(prefix, failedStates, limit),
    openOf: (prefix, limit) => listOf(prefix, openStates, limit),
    cancel: async (commandId) => {
      await cancelCommand(db, { id: commandId, reason: 'its workflow was cancelled', now: now() });
    },
    expire: async () => (await reconcileCommands(db, { now: now(), ...(poke === undefined ? {} : { poke }) })).expired,
    queueLostCompletions: async () => (await sweepLostCompletions(db, { now: now(), limit: 500 })).length,
    prune: async () => Object.values(await pruneFinished(db, { now: now() })).reduce((sum, rows) => sum + rows, 0),
  };
}

function countsOf(rows: readonly { state: number; commands: number }[]): CommandCounts {
  const states: Record<string, number> = {};
  for (const { state, commands } of rows) states[commandStateName(state) ?? String(state)] = commands;
  const sum = (pick: (state: number) => boolean): number =>
    rows.filter((row) => pick(row.state)).reduce((total, row) => total + row.commands, 0);
  return { total: sum(() => true), open: sum((state) => state < commandStates.done), states };
}

const page = {
  name: 'run-nodes',
  text: `select id from nodes where state = 'active' and role = any($1::text[]) and id > $2 order by id limit $3`,
};

export interface CommandQueueOptions extends DatabasePorts {
  readonly worker: WorkerKeyProvider;
  readonly trustDomain: () => string;
  readonly poke: Poke;
}

export const createCommandQueue = ({ db, now, worker, trustDomain, poke }: CommandQueueOptions): CommandSigningPorts['queue'] => ({
  enqueue: async (items) => {
    const commands = items.map(({ deadline, ...item }) => ({ ...item, deadlineMs: deadline }));
    const { enqueued, existing } = await enqueueCommands({ db, worker, trustDomain: trustDomain(), now: now(), commands, poke });
    return { enqueued: enqueued.length, existing: existing.length };
  },
});

const batchPage = {
  name: 'run-batch-nodes',
  text: `select distinct subject as id from command_batch_scope where batch_id = $1 and subject > $2 order by 1 limit $3`,
};

/** A producer's leaves are one node each. */
export const createBatchNodePages = ({ db }: Pick<DatabasePorts, 'db'>): CommandSigningPorts['batchNodes'] => ({
  page: async ({ batchId, after, limit }) => (await db.query<{ id: string }>(batchPage, [batchId, after, limit])).map((row) => row.id),
});

export const createNodePages = ({ db }: Pick<DatabasePorts, 'db'>): CommandSigningPorts['nodes'] => ({
  page: async ({ roles, after, limit }: { roles: readonly NodeRole[]; after: string; limit: number }) =>
    (await db.query<{ id: string }>(page, [roles, after, limit])).map((row) => row.id),
});
