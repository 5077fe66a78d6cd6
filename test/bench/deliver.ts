/** Queued commands a second read by cursor for delivery, against the bare lateral read of the same rows. */
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { hour } from '../../domain/time.ts';
import { readOpenCommands } from '../../drizzle/queries/dispatch.ts';
import { InventoryRefreshSchema } from '../../proto/index.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { benchWorker, inTurns, trustDomain, withFleet } from './database-load.ts';
import type { Figure } from './gateway-load.ts';

export interface DeliverOptions {
  readonly nodes?: number;
  readonly perNode?: number;
  readonly rounds?: number;
}

const limit = 0.8;
/** Nodes of one read, and commands of one node in it: what a gateway asks for at a time. */
const nodesPerRead = 100;
const perRead = 4;

const bareRead = {
  name: 'bare-deliver',
  text: `select c.node_id, c.seq, c.id, c.kind, c.lane, c.body, c.signature from unnest($1::text[], $2::bigint[]) as u(node_id, after_seq)
         cross join lateral (select * from node_commands n where n.node_id = u.node_id and n.seq > u.after_seq order by n.seq limit $3) c`,
};

interface Row {
  readonly nodeId: string;
  readonly seq: number;
}

export async function figure(options: DeliverOptions = {}): Promise<Figure> {
  const { nodes = 2_000, perNode = 20, rounds = 9 } = options;
  return withFleet({ nodes, connections: 4 }, async (db) => {
    const worker = await benchWorker(db);
    const payload = toBinary(AnySchema, anyPack(InventoryRefreshSchema, create(InventoryRefreshSchema)));
    for (let at = 0; at < perNode; at += 1) {
      const now = Date.now();
      const commands = Array.from({ length: nodes }, (_, node) => ({
        id: `bench/${at}/${node}`,
        nodeId: `node-${node}`,
        kind: 'inventory.refresh',
        payload,
        deadlineMs: now + hour,
        requestedBy: 'bench',
      }));
      await enqueueCommands({ db, worker, trustDomain, now, commands });
    }
    await db.query({ text: 'vacuum analyze' });

    /** Every command once, in reads of a hundred nodes that go on from their cursors. */
    const drain = async (read: (cursors: { nodeId: string; afterSeq: number }[]) => Promise<readonly Row[]>): Promise<number> => {
      const startedAt = performance.now();
      let rows = 0;
      for (let from = 0; from < nodes; from += nodesPerRead) {
        const cursors = new Map(Array.from({ length: nodesPerRead }, (_, node) => [`node-${from + node}`, 0]));
        for (let got = -1; got !== 0; ) {
          const batch = await read([...cursors].map(([nodeId, afterSeq]) => ({ nodeId, afterSeq })));
          for (const { nodeId, seq } of batch) cursors.set(nodeId, seq);
          got = batch.length;
          rows += got;
        }
      }
      if (rows !== nodes * perNode) throw new Error(`read ${rows} of ${nodes * perNode} commands`);
      return (rows / (performance.now() - startedAt)) * 1_000;
    };
    const ours = () => drain((cursors) => readOpenCommands(db, cursors, perRead));
    const bare = () =>
      drain(async (cursors) => {
        const { rows } = await db.pool.query<{ node_id: string; seq: string }>({
          ...bareRead,
          values: [cursors.map((c) => c.nodeId), cursors.map((c) => c.afterSeq), perRead],
        });
        return rows.map((row) => ({ nodeId: row.node_id, seq: Number(row.seq) }));
      });
    await bare();
    await ours();
    const turns = await inTurns(rounds, { ours, bare });
    return {
      figure: 'deliver',
      ratio: turns.ratio,
      goal: `>= ${limit}`,
      holds: turns.ratio >= limit,
      detail: { nodes, perNode, oursPerSecond: Math.round(turns.ours), barePerSecond: Math.round(turns.bare) },
    };
  });
}
