/** A deployment with approvers for the tests of batches: real keys, a published set, batches with real scopes. */
import { create, toBinary } from '@bufbuild/protobuf';
import { day, hour } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { findBatches } from '../../drizzle/queries/batches.ts';
import { signApproval } from '../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { NodeRebootSchema } from '../../proto/index.ts';
import {
  type CreateBatchContext,
  type CreateBatchRequest,
  type CreatedBatch,
  createCommandBatch,
  type LeafInput,
  recordApproval,
  releaseRange,
} from '../../services/batches/index.ts';
import { type CommandRequest, type Enqueued, enqueueCommands } from '../../services/command-queue.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import { type Approver, createApprover, quorumOfApprovers } from '../harness/approvers.ts';
import { addNode, command, keyring, rebootPayload, recordingLog, testBundle, trustDomain } from './support.ts';

export type { Approver };
export { createApprover, quorumOfApprovers };

/** Dispatch asks the database's clock: batches live in real time. */
export const start = Date.now();

export const approverNames = ['ann', 'ben', 'cem'] as const;
export const three: readonly Approver[] = approverNames.map(() => createApprover());
/** Two of three. */
export const twoOfThree: QuorumFields = quorumOfApprovers({ approvers: three });

/** Publishes roots and this set, as an api that is configured with it. */
export async function publishQuorum(db: Database, quorum: QuorumFields | null = twoOfThree): Promise<number> {
  const bundle = await testBundle();
  const options = { db, bundle, floorOption: 0, overlapMs: day, processId: 'api@test:1', now: start, log: recordingLog() };
  return (await settleAndPublish({ ...options, approvers: quorum })).publishedVersion;
}

/** As if the deployment published this set from now on, whoever signed it. */
export async function forceQuorum(db: Database, quorum: QuorumFields): Promise<void> {
  await db.query({ text: 'truncate trust_bundle_state, trust_bundle_history, approver_set_changes' });
  await publishQuorum(db, quorum === noQuorum ? null : quorum);
}

export const rebootLeaf = (subject: string, changes: Partial<LeafInput> = {}): LeafInput => ({ subject, kind: 'node.reboot', ...changes });

/** The payload of a leaf: a reboot with this reason. */
export const rebootValue = (reason = ''): Uint8Array => toBinary(NodeRebootSchema, create(NodeRebootSchema, { reason }));
export const rebootType = 'type.googleapis.com/bettercompute.agent.v1.NodeReboot';

export interface BatchInit extends Partial<CreateBatchRequest> {
  readonly context?: Partial<CreateBatchContext>;
}

export function createBatchOf(db: Database, scope: readonly LeafInput[], { context, ...request }: BatchInit = {}): Promise<CreatedBatch> {
  return db.transaction((tx) =>
    createCommandBatch(
      tx,
      { tenantId: 'default', scope, reason: 'kernel update', createdBy: 'olga', ...request },
      { now: start, quorum: twoOfThree, trustDomain, ...context },
    ),
  );
}

/** Nodes of one tenant, with their logs. */
export async function addNodes(db: Database, ids: readonly string[], tenantId = 'default'): Promise<void> {
  for (const id of ids) await addNode(db, id);
  if (tenantId !== 'default') {
    await db.query({ text: 'insert into tenants (id) values ($1) on conflict do nothing' }, [tenantId]);
    await db.query({ text: 'update nodes set tenant_id = $2 where id = any($1::text[])' }, [ids, tenantId]);
  }
}

export async function approvalOf(db: Database, batchId: string, { signer, domain = trustDomain }: Approver & { domain?: string }) {
  const [batch] = await findBatches(db, [batchId]);
  if (batch === undefined) throw new Error(`no batch ${batchId}`);
  const { root, size, notAfterMs } = batch;
  const { kid, sig } = await signApproval(signer, { batchId, root, size, notAfterMs, trustDomain: domain });
  return { kid, sig };
}

export async function approve(db: Database, batchId: string, by: readonly Approver[] = three.slice(0, 2)) {
  const now = start;
  let last: Awaited<ReturnType<typeof recordApproval>> | undefined;
  for (const approver of by)
    last = await recordApproval(db, { batchId, signature: await approvalOf(db, batchId, approver) }, { now, trustDomain });
  return last;
}

export const batchWorker = (db: Database): Promise<WorkerKeyProvider> => keyring(db, { now: () => start });

export const rebootIn = (nodeId: string, changes: Partial<CommandRequest> = {}): CommandRequest =>
  command(nodeId, { kind: 'node.reboot', payload: rebootPayload(), deadlineMs: start + hour, ...changes });

export async function enqueueAll(
  db: Database,
  commands: readonly CommandRequest[],
  poke?: (ids: readonly string[]) => void,
): Promise<Enqueued> {
  const options = { db, worker: await batchWorker(db), trustDomain, now: start, commands };
  return enqueueCommands({ ...options, ...(poke === undefined ? {} : { poke }) });
}

export async function releaseAll(
  db: Database,
  batchId: string,
  changes: { from?: number; to?: number; now?: number; deadlineMs?: number } = {},
) {
  const { from = 0, to = 50_000, now = start, deadlineMs = start + hour } = changes;
  return releaseRange(db, await batchWorker(db), { request: { batchId, from, to, deadlineMs }, context: { now, trustDomain } });
}
