/**
 * Ending an identity (REV-001 to REV-015). Everything that speaks for it ends in one transaction: its certificates (with the
 * commit-ordered number the gateways' feed reads), its generation, its unfinished commands. Its session is the gateway's to
 * close, with a RevocationNotice.
 */
import type { NodeRole } from '../domain/commands/kinds.ts';
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { changeIdentity, lockNode, type NodeFacts, type NodeState } from '../drizzle/queries/nodes.ts';
import { appendAudit } from './audit.ts';
import { cancelCommandsOf } from './command-ends.ts';

/** Gateways may listen here to read the feed at once; they read it every second anyway. */
export const revocationChannel = 'bc_revocation';

const revoke = {
  name: 'revoke-certificates',
  text: `with counted as (update revocation_counter set seq = seq + 1 where id = 1
                          and exists (select from node_certs where node_id = $1 and revoked_at is null and not_after > $2) returning seq)
         update node_certs c set revoked_at = $2, revoke_reason = $3, revocation_seq = counted.seq from counted
         where c.node_id = $1 and c.revoked_at is null and c.not_after > $2 returning c.serial`,
};

/**
 * Revokes every unexpired certificate of a node, reserved ones too. The counter's row stays locked to the commit, so numbers
 * become visible in their order (H-16): call it late in the transaction. The caller holds the node's row lock.
 */
export async function revokeCertificates(
  tx: Executor,
  input: { readonly nodeId: string; readonly reason: string; readonly now: number },
): Promise<string[]> {
  const rows = await tx.query<{ serial: string }>(revoke, [input.nodeId, instant(input.now), input.reason]);
  if (rows.length > 0) await tx.query({ text: 'select pg_notify($1, $2)' }, [revocationChannel, input.nodeId]);
  return rows.map((row) => row.serial);
}

export interface RevokeOptions {
  readonly db: Database;
  readonly nodeId: string;
  readonly actor: string;
  readonly reason: string;
  /** The node is deleted: it never comes back, and its id stays with what it did (REV-003). Default: it may join again. */
  readonly retire?: boolean;
  readonly now: number;
}

export interface Revoked {
  /** Serials revoked by this call; none when it was revoked before. */
  readonly serials: readonly string[];
  readonly generation: number;
  readonly cancelledCommands: number;
  /** It was revoked before this call; nothing was changed. */
  readonly already: boolean;
}

/** Why an identity ends, and what becomes of its node (REV-002 to REV-006). Runs on machines end theirs by services/metal. */
interface EndRow {
  readonly state: NodeState;
  /** null: it stays what it was. */
  readonly role: NodeRole | null;
  readonly action: string;
  /** Said of the commands that it did not finish. */
  readonly commands: string;
  /** From any other state it is refused; from the one that it leads to for good it changes nothing. */
  readonly from: readonly NodeState[];
}

const identityEnds = {
  /** It may join again. */
  revoke: { state: 'revoked', role: null, action: 'node.revoke', commands: 'node revoked', from: ['active', 'quarantined'] },
  /** It never comes back, and its id stays with what it did. */
  delete: { state: 'retired', role: null, action: 'node.delete', commands: 'node deleted', from: ['active', 'quarantined', 'revoked'] },
  /** Taken back from whoever had it: the machine waits for its next run, and what it ran before speaks for nobody. */
  reclaim: { state: 'active', role: 'node', action: 'node.reclaim', commands: 'machine reclaimed', from: ['active'] },
  /** Let to a tenant as a whole: the platform's identity ends before the tenant's begins. */
  'dedicated-root': {
    state: 'active',
    role: 'node-tenant',
    action: 'node.dedicate',
    commands: 'machine let to a tenant',
    from: ['active'],
  },
} as const satisfies Record<string, EndRow>;

export type IdentityEnd = keyof typeof identityEnds;

export interface EndIdentityOptions {
  readonly nodeId: string;
  readonly why: IdentityEnd;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
}

/**
 * Ends a node's identity in a transaction of the caller's: its certificates, its unfinished commands, its generation. Repeated, it changes nothing where
 * the node is already what it would become for good.
 *
 * @throws NOT_FOUND; INVALID_INPUT without actor and reason; INVALID_STATE for a deleted node; CONFLICT
 */
export async function endIdentity(tx: Executor, { nodeId, why, actor, reason, now }: EndIdentityOptions): Promise<Revoked> {
  const row: EndRow = identityEnds[why];
  if (actor.trim() === '' || reason.trim() === '') {
    throw new ControlError('INVALID_INPUT', 'revoking a node needs an actor and a reason', { details: { reason: 'reason-needed' } });
  }
  const node = await lockNode(tx, nodeId);
  if (node === undefined)
    throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, { details: { reason: 'unknown-node', nodeId } });
  if (node.state === row.state && !row.from.includes(node.state))
    return { serials: [], generation: node.identityGeneration, cancelledCommands: 0, already: true };
  assertMayEnd(row, node);
  const generation = await changeIdentity(tx, { node, state: row.state, ...(row.role === null ? {} : { role: row.role }), now });
  if (generation === undefined)
    throw new ControlError('CONFLICT', `node ${nodeId} changed meanwhile`, { details: { reason: 'node-changed', nodeId } });
  const cancelledCommands = await cancelCommandsOf(tx, { nodeId, reason: row.commands, now });
  const serials = await revokeCertificates(tx, { nodeId, reason, now });
  const details = { reason, generation, serials };
  await appendAudit(tx, { key: `node/${nodeId}/revoke/${generation}`, actor, action: row.action, subject: nodeId, details }, now);
  return { serials, generation, cancelledCommands, already: false };
}

function assertMayEnd({ from }: EndRow, { id, state }: NodeFacts): void {
  if (from.includes(state)) return;
  const is = state === 'retired' ? 'deleted' : state;
  throw new ControlError('INVALID_STATE', `node ${id} is ${is}`, { details: { reason: `node-${state}`, nodeId: id } });
}

/**
 * Revokes a node's identity, or deletes the node with it. Repeated, it changes nothing.
 *
 * @throws NOT_FOUND; INVALID_INPUT without actor and reason; INVALID_STATE for a retired node
 */
export const revokeNode = ({ db, retire = false, ...rest }: RevokeOptions): Promise<Revoked> =>
  db.transaction((tx) => endIdentity(tx, { ...rest, why: retire ? 'delete' : 'revoke' }));
