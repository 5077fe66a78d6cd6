/** The batch and tenant routes over the database; the workflow is told after the transaction, and may hear of it later (D: one truth). */

import type { z } from 'zod';
import { proposedByText } from '../domain/batch/proposal.ts';
import { ControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import type { Log } from '../runtime/log.ts';
import * as service from '../services/batches/index.ts';
import { readPublishedQuorum } from '../services/published-quorum.ts';
import * as tenantService from '../services/tenants.ts';
import type * as schemas from './batch-schemas.ts';
import type { BatchWorkflows } from './batch-workflows.ts';
import type { CommandsRequest } from './ports.ts';
import { maySee, type Principal } from './principal.ts';

type Answer<S extends z.ZodType> = z.input<S>;
export type BatchAnswer = Answer<typeof schemas.batch>;

export interface OperatorBatches {
  create(
    body: schemas.CreateBatchBody,
    by: { readonly createdBy: string; readonly agent: Principal['agent'] },
  ): Promise<Answer<typeof schemas.createdBatch>>;
  list(
    principal: Principal,
    page: { after: string; limit: number; state?: service.BatchView['state'] | undefined },
  ): Promise<BatchAnswer[]>;
  /** @throws NOT_FOUND for a batch that is not there, or not the caller's to see */
  get(principal: Principal, id: string): Promise<BatchAnswer>;
  scope(principal: Principal, id: string, page: { after: number; limit: number }): Promise<Answer<typeof schemas.scopePage>>;
  overview(principal: Principal, id: string): Promise<service.ScopeOverview>;
  approve(
    principal: Principal,
    id: string,
    signature: { kid: string; sig: string; actor: string },
  ): Promise<Answer<typeof schemas.recordedApproval>>;
  end(
    principal: Principal,
    id: string,
    words: { what: 'cancel' | 'reject'; actor: string; reason: string },
  ): Promise<Answer<typeof schemas.endedBatch>>;
  assertMayRun(principal: Principal, request: Pick<CommandsRequest, 'nodes' | 'kind' | 'payload' | 'batchId'>): Promise<void>;
  /** For what makes its own batch. @throws PERMISSION_DENIED; NOT_FOUND */
  assertOwnNodes(principal: Principal, nodes: CommandsRequest['nodes']): Promise<void>;
}

export interface OperatorTenants {
  create(request: { id: string; actor: string }): Promise<void>;
  list(): Promise<tenantService.TenantView[]>;
  delete(request: { id: string; actor: string }): Promise<readonly string[]>;
}

export interface BatchPortsOptions {
  readonly db: Database;
  /** This process's own: what approvals are judged for. */
  readonly trustDomain: () => string;
  readonly workflows: BatchWorkflows;
  readonly log: Pick<Log, 'warn'>;
  now(): number;
}

export function createOperatorBatches({ db, trustDomain, workflows, log, now }: BatchPortsOptions): OperatorBatches {
  /** Lost words cost nothing but time: the reconciler starts what is missing, and the workflow looks by itself. */
  const tell = (what: string, batchId: string, work: Promise<void>): void =>
    void work.catch((error: unknown) =>
      log.warn({ err: error, batchId }, `the workflow of the batch was not ${what}; the reconciler will see to it`),
    );
  const getOwn = async (principal: Principal, id: string): Promise<service.BatchView> => {
    const batch = await service.readBatch(db, id, { now: now() });
    if (maySee(principal, batch.tenantId)) return batch;
    throw new ControlError('NOT_FOUND', `no batch is called ${id}`, { details: { reason: 'unknown-batch', batchId: id } });
  };
  return {
    async create(body, { createdBy, agent }) {
      const request = requestOf(body, { createdBy, agent });
      const created = await db.transaction(async (tx) =>
        service.createCommandBatch(tx, request, {
          now: now(),
          quorum: await readPublishedQuorum(tx),
          trustDomain: trustDomain(),
          origin: 'request',
        }),
      );
      tell('started', created.batchId, workflows.start(created.batchId));
      return { ...created, root: hex(created.root) };
    },
    list: async ({ tenants }, page) => (await service.listBatches(db, { ...page, tenants, now: now() })).map((view) => answerOf(view)),
    async get(principal, id) {
      const view = await getOwn(principal, id);
      return { ...answerOf(view), progress: await service.batchProgress(db, id, { now: now() }) };
    },
    async scope(principal, id, { after, limit }) {
      await getOwn(principal, id);
      const { leaves, next } = await service.readScopePage(db, id, { afterIndex: after, limit });
      return { leaves: leaves.map(leafAnswer), next };
    },
    async overview(principal, id) {
      await getOwn(principal, id);
      return service.readOverview(db, id);
    },
    async approve(principal, id, { kid, sig, actor }) {
      await getOwn(principal, id);
      const signature = { kid, sig: new Uint8Array(Buffer.from(sig, 'base64url')) };
      const recorded = await service.recordApproval(
        db,
        { batchId: id, signature, submittedBy: actor },
        { now: now(), trustDomain: trustDomain() },
      );
      tell('told of an approval', id, workflows.nudge(id));
      return recorded;
    },
    async end(principal, id, { what, actor, reason }) {
      await getOwn(principal, id);
      const ended = await service.cancelBatch(db, { batchId: id, actor, reason, isRejection: what === 'reject' }, { now: now() });
      tell('told of its end', id, workflows.nudge(id));
      return ended;
    },
    assertOwnNodes: ({ tenants }, nodes) => service.assertOwnNodes(db, { nodes, tenants }),
    assertMayRun: ({ tenants }, { nodes, kind, payload, batchId }) =>
      service.assertMayRun(db, { nodes, kind, payload, batchId, tenants, now: now() }),
  };
}

export const createOperatorTenants = ({ db, now }: Pick<BatchPortsOptions, 'db' | 'now'>): OperatorTenants => ({
  create: (request) => tenantService.createTenant(db, { ...request, now: now() }),
  list: () => tenantService.listTenants(db, 1_000),
  delete: (request) => tenantService.deleteTenant(db, { ...request, now: now() }),
});

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

function requestOf(
  body: schemas.CreateBatchBody,
  { createdBy, agent }: { readonly createdBy: string; readonly agent: Principal['agent'] },
): service.CreateBatchRequest {
  const { notAfterSeconds, actor: _actor, agent: _agent, scope, waves, ...rest } = body;
  return {
    ...rest,
    createdBy,
    createdByAgent: agent?.name ?? null,
    delegationId: agent?.delegationId ?? null,
    scope: scope.map(leafOf),
    waves: waves === undefined ? null : wavesOf(waves),
    ...(notAfterSeconds === undefined ? {} : { windowMs: notAfterSeconds * 1_000 }),
  };
}

function leafOf({ subject, kind, payloadSha256, payload }: schemas.CreateBatchBody['scope'][number]): service.LeafInput {
  return {
    subject,
    kind,
    ...(payloadSha256 === undefined ? {} : { payloadSha256: new Uint8Array(Buffer.from(payloadSha256, 'hex')) }),
    ...(payload === undefined
      ? {}
      : { payload: { typeUrl: payload.typeUrl, value: new Uint8Array(Buffer.from(payload.value, 'base64')) } }),
  };
}

/** Without the fields that are not there: absent and undefined are one. */
const wavesOf = (waves: NonNullable<schemas.CreateBatchBody['waves']>) =>
  JSON.parse(JSON.stringify(waves)) as NonNullable<service.CreateBatchRequest['waves']>;

const leafAnswer = ({ index, subject, kind, payloadSha256, payload }: service.ScopePageLeaf) => ({
  index,
  subject,
  kind,
  payloadSha256: hex(payloadSha256),
  ...(payload === null ? {} : { payload: { typeUrl: payload.typeUrl, value: Buffer.from(payload.value).toString('base64') } }),
});

const proposalOf = ({ createdBy, createdByAgent, delegationId }: service.BatchView): string | null =>
  createdByAgent === null ? null : proposedByText({ agent: createdByAgent, person: createdBy, delegationId: delegationId ?? 'none' });

function answerOf(view: service.BatchView): BatchAnswer {
  const { createdByAgent: _agent, delegationId: _delegation, members: _members, root, ...rest } = view;
  const proposedBy = proposalOf(view);
  return { ...rest, root: hex(root), ...(proposedBy === null ? {} : { proposedBy }) };
}
