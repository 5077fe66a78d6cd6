/**
 * Ending an identity (REV-001 to REV-015). Everything that speaks for it ends in one transaction: its certificates (with the
 * commit-ordered number the gateways' feed reads), its generation, its unfinished commands. Its session is the gateway's to
 * close, with a RevocationNotice.
 */
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { changeIdentity, lockNode } from '../drizzle/queries/nodes.ts';
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

/**
 * Revokes a node's identity, or deletes the node with it. Repeated, it changes nothing.
 *
 * @throws NOT_FOUND; INVALID_INPUT without actor and reason; INVALID_STATE for a retired node
 */
export async function revokeNode({ db, nodeId, actor, reason, retire = false, now }: RevokeOptions): Promise<Revoked> {
  const state = retire ? 'retired' : 'revoked';
  if (actor.trim() === '' || reason.trim() === '') {
    throw new ControlError('INVALID_INPUT', 'revoking a node needs an actor and a reason', { details: { reason: 'reason-needed' } });
  }
  return db.transaction(async (tx) => {
    const node = await lockNode(tx, nodeId);
    if (node === undefined)
      throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, { details: { reason: 'unknown-node', nodeId } });
    if (node.state === 'retired' && !retire)
      throw new ControlError('INVALID_STATE', `node ${nodeId} is deleted`, { details: { reason: 'node-retired', nodeId } });
    if (node.state === state) return { serials: [], generation: node.identityGeneration, cancelledCommands: 0, already: true };
    const generation = await changeIdentity(tx, { node, state, now });
    if (generation === undefined)
      throw new ControlError('CONFLICT', `node ${nodeId} changed meanwhile`, { details: { reason: 'node-changed', nodeId } });
    const cancelledCommands = await cancelCommandsOf(tx, { nodeId, reason: retire ? 'node deleted' : 'node revoked', now });
    const serials = await revokeCertificates(tx, { nodeId, reason, now });
    await appendAudit(
      tx,
      {
        key: `node/${nodeId}/revoke/${generation}`,
        actor,
        action: retire ? 'node.delete' : 'node.revoke',
        subject: nodeId,
        details: { reason, generation, serials },
      },
      now,
    );
    return { serials, generation, cancelledCommands, already: false };
  });
}
