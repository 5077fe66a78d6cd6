/** Evidence of what approvers decided, over PostgreSQL and the audit key of the key bundle. */
import type { Database } from '../../drizzle/client.ts';
import { approverSetsHeld } from '../../drizzle/queries/approver-fleet.ts';
import { readApprovals } from '../../drizzle/queries/batches.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import {
  createQuorumEvidence,
  parseQuorumEvidence,
  type QuorumEvidence,
  type QuorumFacts,
  setInEvidence,
} from '../../pki/audit/quorum-evidence.ts';
import { countApprovers, requiredApprovals } from '../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { readSetChanges } from '../../services/approver-sets.ts';
import { batchProgress, readBatch } from '../../services/batches/index.ts';
import { readPublishedQuorum } from '../../services/published-quorum.ts';
import { readEvidence, readOverrides } from '../../services/rotations.ts';
import { workflowIds } from '../../temporal.config.ts';
import type { ApproverSetSigningPorts } from '../approver-set-ports.ts';
import type { BatchSigningPorts } from '../batch-ports.ts';
import type { RunningBundle } from './bundle-steps.ts';
import { auditSignerOf, recordOnce } from './rotation.ts';

export interface QuorumEvidenceOptions {
  readonly db: Database;
  readonly running: RunningBundle;
}

/** Once: a document that is there stands, whatever a repeated step would say. */
export async function recordQuorumEvidence({ db, running }: QuorumEvidenceOptions, rotationId: string, facts: QuorumFacts): Promise<void> {
  const signed = await createQuorumEvidence({ signer: auditSignerOf(await running.refresh()), facts });
  await recordOnce(db, { ...signed, rotationId, stage: 'confirm', at: facts.at, actor: facts.actor });
}

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

export const createBatchEvidence = (options: QuorumEvidenceOptions): BatchSigningPorts['evidence'] => ({
  write: async (batchId) => {
    const facts = await batchFacts(options, batchId);
    if (facts === null) return;
    const name = workflowIds.approveBatch(batchId);
    const [first] = await readEvidence(options.db, name);
    // What was signed stays. Commands that an approved batch took after it was done make a document beside the first.
    const isFollowed = first !== undefined && commandsIn(first.document) !== totalOf(facts);
    await recordQuorumEvidence(options, isFollowed ? `${name}/${totalOf(facts)}` : name, facts);
  },
});

const totalOf = (facts: QuorumFacts | QuorumEvidence): number =>
  facts.about === 'batch' ? facts.commands.reduce((sum, { count }) => sum + count, 0) : 0;
const commandsIn = (document: Uint8Array): number => totalOf(parseQuorumEvidence(new Uint8Array(document)));

/** null: it has not ended, whoever says so. */
async function batchFacts({ db, running }: QuorumEvidenceOptions, batchId: string): Promise<QuorumFacts | null> {
  const now = await databaseNow(db);
  const [batch, progress] = [await readBatch(db, batchId, { now }), await batchProgress(db, batchId, { now })];
  if (batch.state === 'pending' || !progress.isDone) return null;
  const { trustDomain } = await running.refresh();
  const signatures = (await readApprovals(db, batchId)).map(({ kid, signature }) => ({ kid, sig: new Uint8Array(signature) }));
  return {
    about: 'batch',
    id: batchId,
    trustDomain,
    at: Math.floor(now),
    actor: 'system',
    set: setInEvidence(await setThatApproved(db, { batch, signatures, trustDomain })),
    signatures: signatures.map(({ kid, sig }) => ({ kid, sig: base64url(sig) })),
    batch: {
      tenant: batch.tenantId,
      state: batch.state,
      root: Buffer.from(batch.root).toString('hex'),
      size: batch.size,
      required: batch.required,
      notAfter: batch.notAfterMs,
      reason: batch.reason,
      createdBy: batch.createdBy,
      createdByAgent: batch.createdByAgent,
      delegation: batch.delegationId,
      closedBy: batch.closedBy,
      closeReason: batch.closeReason,
    },
    commands: Object.entries(progress.states)
      .map(([state, count]) => ({ state, count: count ?? 0 }))
      .sort((a, b) => (a.state < b.state ? -1 : 1)),
  };
}

interface Approved {
  readonly batch: Awaited<ReturnType<typeof readBatch>>;
  readonly signatures: readonly { readonly kid: string; readonly sig: Uint8Array }[];
  readonly trustDomain: string;
}

/** The newest set by which the approvals suffice: approvers may have changed since it was released. None: the published one, and it shows. */
async function setThatApproved(db: Database, { batch, signatures, trustDomain }: Approved): Promise<QuorumFields> {
  const { id: batchId, root, size, notAfterMs, required } = batch;
  const published = await readPublishedQuorum(db);
  const earlier = (await readSetChanges(db)).toReversed();
  const suffices = (quorum: QuorumFields): boolean =>
    countApprovers({ quorum, facts: { batchId, root, size, notAfterMs, trustDomain }, signatures }).kids.length >=
    Math.max(required, requiredApprovals(quorum, size));
  return [published, ...earlier, noQuorum].find(suffices) ?? published;
}

export const createApproverSetEvidence = (options: QuorumEvidenceOptions): ApproverSetSigningPorts['evidence'] => ({
  write: async ({ rotationId, epoch, actor }) => {
    const { db, running } = options;
    const changes = await readSetChanges(db);
    const place = changes.findIndex((change) => Number(change.approverSetEpoch) === epoch);
    const to = changes[place] ?? noQuorum;
    await recordQuorumEvidence(options, rotationId, {
      about: 'approver-set',
      id: rotationId,
      trustDomain: (await running.refresh()).trustDomain,
      at: Math.floor(await databaseNow(db)),
      actor,
      from: setInEvidence(changes[place - 1] ?? noQuorum),
      to: setInEvidence(to),
      signatures: to.approverSetSignatures.map(({ kid, sig }) => ({ kid, sig: base64url(sig) })),
      publishedVersion: (await publishedTrust(db))?.version ?? 0,
      fleet: await approverSetsHeld(db),
      overrides: (await readOverrides(db, rotationId)).map(({ kind, subject, actor: by, reason, at }) => ({
        kind,
        subject,
        actor: by,
        reason,
        at: Math.floor(at),
      })),
    });
  },
});
