/**
 * 50,000 commands of an approved batch released, in commands a second, against the bare way of as many signed commands into the log: the
 * same signatures, one statement a page that raises the counters and inserts. A release also proves each leaf, reads what it signs, and
 * moves rows with all their indexes.
 */
import { createHash } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { day, hour } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { findBatches } from '../../drizzle/queries/batches.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { signCommand } from '../../pki/envelope/index.ts';
import { signApproval } from '../../pki/quorum/index.ts';
import { NodeRebootSchema, SignatureSchema } from '../../proto/index.ts';
import { createCommandBatch, recordApproval, releaseRange } from '../../services/batches/index.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { createWorkerKeyring, type WorkerKeyProvider } from '../../services/worker-keys.ts';
import { createApprover, quorumOfApprovers } from '../harness/approvers.ts';
import { inTurns, trustDomain, withFleet } from './database-load.ts';
import type { Figure } from './gateway-load.ts';

export interface BatchReleaseOptions {
  readonly nodes?: number;
  readonly perNode?: number;
  readonly rounds?: number;
}

const limit = 0.7;
const page = 500;

const bareInsert = {
  name: 'bare-release',
  text: `with input as (select * from unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[]) as i(node_id, id, body, sha, signature)),
           raised as (update node_queue q set next_seq = q.next_seq + 1 from input i where q.node_id = i.node_id returning q.node_id, q.next_seq)
         insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, deadline)
         select i.node_id, r.next_seq, i.id, 'node.reboot', 'power', i.body, i.sha, i.signature, $6, $7, $7 from input i join raised r using (node_id)`,
};

export async function figure(options: BatchReleaseOptions = {}): Promise<Figure> {
  const { nodes = 10_000, perNode = 5, rounds = 3 } = options;
  return withFleet({ nodes, connections: 4 }, async (db) => {
    const bundle = await createBundle({ trustDomain, now: Date.now() - day });
    const worker = createWorkerKeyring({ db, processId: 'bench', bundle: () => bundle, times: productionTimes, now: Date.now });
    const approvers = [createApprover(), createApprover()];
    const names = Array.from({ length: nodes }, (_, at) => `node-${at}`);
    await publish(db, bundle, approvers);
    let round = 0;
    const ours = async (): Promise<number> => {
      round += 1;
      const batchId = await heldBatch(db, { names, perNode, approvers, round, worker });
      const now = Date.now();
      const startedAt = performance.now();
      const request = { batchId, from: 0, to: nodes * perNode, deadlineMs: now + hour };
      const { released } = await releaseRange(db, worker, { request, context: { now, trustDomain } });
      if (released !== nodes * perNode) throw new Error(`released ${released} of ${nodes * perNode}`);
      return (released / (performance.now() - startedAt)) * 1_000;
    };
    const body = Buffer.alloc(250, 7);
    const bare = async (): Promise<number> => {
      round += 1;
      const key = await worker.current();
      const startedAt = performance.now();
      for (let at = 0; at < perNode; at += 1) {
        for (let from = 0; from < nodes; from += page) {
          const own = names.slice(from, from + page);
          const signatures = await Promise.all(own.map(async () => toBinary(SignatureSchema, await signCommand(key, body))));
          const digests = own.map(() => createHash('sha256').update(body).digest());
          const values = [own, own.map((name) => `bare/${round}/${at}/${name}`), own.map(() => body), digests, signatures];
          await db.query(bareInsert, [...values, key.rootId, new Date(Date.now() + hour)]);
        }
      }
      return ((nodes * perNode) / (performance.now() - startedAt)) * 1_000;
    };
    await bare();
    await ours();
    const turns = await inTurns(rounds, { ours, bare });
    return {
      figure: 'batch-release',
      ratio: turns.ratio,
      goal: `>= ${limit}`,
      holds: turns.ratio >= limit,
      detail: { nodes, commands: nodes * perNode, oursPerSecond: Math.round(turns.ours), barePerSecond: Math.round(turns.bare) },
    };
  });
}

type Approvers = readonly ReturnType<typeof createApprover>[];
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

async function publish(db: Database, bundle: PkiBundle, approvers: Approvers): Promise<void> {
  const options = { db, bundle, floorOption: 0, overlapMs: day, processId: 'bench', now: Date.now(), log: quiet };
  await settleAndPublish({ ...options, approvers: quorumOfApprovers({ approvers }) });
}

interface Held {
  readonly names: readonly string[];
  readonly perNode: number;
  readonly approvers: Approvers;
  readonly round: number;
  readonly worker: WorkerKeyProvider;
}

async function heldBatch(db: Database, { names, perNode, approvers, round, worker }: Held): Promise<string> {
  const now = Date.now();
  const scope = names.map((subject) => ({ subject, kind: 'node.reboot' }));
  const { batchId } = await db.transaction((tx) =>
    createCommandBatch(
      tx,
      { tenantId: 'default', scope, reason: 'bench', createdBy: 'bench' },
      { now, quorum: quorumOfApprovers({ approvers }), trustDomain },
    ),
  );
  const payload = toBinary(AnySchema, anyPack(NodeRebootSchema, create(NodeRebootSchema)));
  for (let at = 0; at < perNode; at += 1) {
    const commands = names.map((nodeId) => ({
      id: `bench/${round}/${at}/${nodeId}`,
      nodeId,
      kind: 'node.reboot',
      payload,
      deadlineMs: now + hour,
      requestedBy: 'bench',
      batchId,
    }));
    await enqueueCommands({ db, worker, trustDomain, now, commands });
  }
  const [batch] = await findBatches(db, [batchId]);
  if (batch === undefined) throw new Error(`no batch ${batchId}`);
  for (const { signer } of approvers) {
    const facts = { batchId, root: batch.root, size: batch.size, notAfterMs: batch.notAfterMs, trustDomain };
    const { kid, sig } = await signApproval(signer, facts);
    await recordApproval(db, { batchId, signature: { kid, sig } }, { now, trustDomain });
  }
  return batchId;
}
