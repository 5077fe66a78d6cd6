/**
 * Signed commands a second into the log, against the bare statement that raises a counter and inserts a row of the same table.
 * One command a call, 16 callers, 2,000 nodes: the way a workflow enqueues.
 */
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { hour } from '../../domain/time.ts';
import { InventoryRefreshSchema } from '../../proto/index.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { benchWorker, inTurns, perSecond, trustDomain, withFleet } from './database-load.ts';
import type { Figure } from './gateway-load.ts';

export interface EnqueueOptions {
  readonly nodes?: number;
  readonly callers?: number;
  readonly durationMs?: number;
  readonly rounds?: number;
}

const limit = 0.7;

const bareInsert = {
  name: 'bare-enqueue',
  text: `with s as (update node_queue set next_seq = next_seq + 1 where node_id = $1 returning next_seq)
         insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, deadline)
         select $1, next_seq, $2, 'inventory.refresh', 'control', $3, '', '', '', $4, $4 from s`,
};

export async function figure(options: EnqueueOptions = {}): Promise<Figure> {
  const { nodes = 2_000, callers = 16, durationMs = 2_000, rounds = 6 } = options;
  return withFleet({ nodes, connections: callers }, async (db) => {
    const worker = await benchWorker(db);
    const payload = toBinary(AnySchema, anyPack(InventoryRefreshSchema, create(InventoryRefreshSchema)));
    const body = Buffer.alloc(400, 7);
    let at = 0;
    const next = () => {
      at += 1;
      return { id: `bench/${at}`, nodeId: `node-${(at * 7_919) % nodes}` };
    };
    const bare = async (): Promise<number> => {
      const { id, nodeId } = next();
      await db.query(bareInsert, [nodeId, id, body, new Date(Date.now() + hour)]);
      return 1;
    };
    const ours = async (): Promise<number> => {
      const now = Date.now();
      const commands = [{ ...next(), kind: 'inventory.refresh', payload, deadlineMs: now + hour, requestedBy: 'bench' }];
      return (await enqueueCommands({ db, worker, trustDomain, now, commands })).enqueued.length;
    };
    const load = (call: () => Promise<number>, ms = durationMs) => perSecond({ callers, durationMs: ms }, call);
    // The compiler has seen everything before the clock runs.
    await load(bare);
    await load(ours, 2 * durationMs);
    const turns = await inTurns(rounds, { ours: () => load(ours), bare: () => load(bare) });
    return {
      figure: 'enqueue',
      ratio: turns.ratio,
      goal: `>= ${limit}`,
      holds: turns.ratio >= limit,
      detail: { nodes, callers, oursPerSecond: Math.round(turns.ours), barePerSecond: Math.round(turns.bare) },
    };
  });
}
