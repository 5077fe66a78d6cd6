/** A node that joins by somebody's word for its name: a new one, or one that is known and gets its next identity. */
import type { NodeRole } from '../../domain/commands/kinds.ts';
import { ControlError, isControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import { insertNodeRow, lockNode, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import type { HardwareClaims } from '../../proto/index.ts';
import { appendAudit } from '../audit.ts';
import { assertTenant } from '../tenants.ts';
import { assertMayJoin, beginIdentity, denied, hardwareJson } from './identity.ts';

export interface Admission {
  readonly nodeId: string;
  readonly siteId: string;
  readonly role: NodeRole;
  readonly tenantId: string;
  /** What names all this, for refusals: "the join token". */
  readonly word: string;
  /** Id of the token that this join uses; of nothing else that could be closed, its own id. */
  readonly evidenceId: string;
  /** When the node is known already, by its role and state before. */
  readonly mayReplace: (before: NodeFacts) => boolean;
  readonly hardware: HardwareClaims | undefined;
  /** For the trail. */
  readonly actor: string;
  readonly details: Readonly<Record<string, string>>;
  readonly now: number;
}

/** @throws PERMISSION_DENIED (tenant-deleted, node-differs, node-not-active) */
export async function admitNode(tx: Executor, admission: Admission): Promise<NodeFacts> {
  const { nodeId, siteId, role, tenantId, word, hardware, actor, now } = admission;
  await assertTenant(tx, tenantId).catch((cause: unknown) => {
    throw isControlError(cause) ? denied('tenant-deleted', `${word} is for tenant ${tenantId}, which was deleted`) : cause;
  });
  const row = { id: nodeId, siteId, role, tenantId, hostname: hardware?.hostname ?? '', hardware: hardwareJson(hardware), now };
  const created = await insertNodeRow(tx, row);
  const node = await lockNode(tx, nodeId);
  if (node === undefined) throw new ControlError('INTERNAL', `node ${nodeId} is gone`);
  const identityGeneration = created ? node.identityGeneration : await renewIdentity(tx, { ...admission, node });
  const details = { ...admission.details, generation: identityGeneration, site: siteId, role, tenant: tenantId };
  const key = `node/${nodeId}/join/${identityGeneration}`;
  await appendAudit(tx, { key, actor, action: created ? 'node.join' : 'node.rejoin', subject: nodeId, details }, now);
  return { ...node, role, state: 'active', identityGeneration };
}

const tenantOf = { name: 'join-tenant', text: 'select tenant_id as "tenantId" from nodes where id = $1' };

async function renewIdentity(tx: Executor, admission: Admission & { readonly node: NodeFacts }): Promise<number> {
  const { node, siteId, role, tenantId, word, evidenceId, mayReplace, now } = admission;
  const [owner] = await tx.query<{ tenantId: string }>(tenantOf, [node.id]);
  // A batch of the one tenant must never reach a machine that answers for the other.
  if (owner?.tenantId !== tenantId) throw denied('node-differs', `node ${node.id} is of another tenant than ${word}`);
  if (node.siteId !== siteId || !mayReplace(node)) {
    throw denied('node-differs', `node ${node.id} is a ${node.role} of site ${node.siteId}, ${word} names a ${role} of ${siteId}`);
  }
  assertMayJoin(node);
  return beginIdentity(tx, { node, role, evidenceId, reason: 'joined again', now });
}
