/**
 * Which nodes enforce another approver set than the published one (LAG-006 to LAG-010). The trust version alone does not show it: a node
 * may hold the newest bundle and have refused its set. What a node reports passes through its gateway, so this is a reading for
 * operators, and no gate.
 */
import { connectedWithinMs } from '../domain/session/presence.ts';
import type { Executor } from '../drizzle/client.ts';
import { approverSetDigest, type QuorumFields } from '../pki/trust/index.ts';
import { hasApprovers, readPublishedQuorum } from './published-quorum.ts';

/** What a connected node says it holds; both null without approver keys. */
export interface NodeSet {
  readonly nodeId: string;
  readonly epoch: number | null;
  /** Lower-case hex. */
  readonly sha256: string | null;
}

export interface SetLag {
  readonly connected: number;
  readonly behind: number;
  /** The first few; epoch 0: a node without keys (A-PKI-34). */
  readonly sample: readonly { readonly nodeId: string; readonly epoch: number }[];
}

export const lagSampleSize = 5;

/** Pure. */
export function lagOf(nodes: readonly NodeSet[], published: QuorumFields): SetLag {
  const digest = approverSetDigest(published);
  const epoch = Number(published.approverSetEpoch);
  const isBehind = (node: NodeSet): boolean =>
    hasApprovers(published)
      ? node.sha256 !== digest || node.epoch !== epoch
      : node.sha256 !== null && node.sha256 !== '' && node.sha256 !== digest;
  const behind = nodes.filter(isBehind);
  return {
    connected: nodes.length,
    behind: behind.length,
    sample: behind.slice(0, lagSampleSize).map((node) => ({ nodeId: node.nodeId, epoch: node.epoch ?? 0 })),
  };
}

const recorded = {
  name: 'approver-lag-recorded',
  text: `select count(*)::int as columns from information_schema.columns
         where table_schema = current_schema() and table_name = 'node_sessions' and column_name in ('approver_set_epoch', 'approver_set_sha256')`,
};
const held = {
  name: 'approver-lag-held',
  text: `select p.node_id as "nodeId", s.approver_set_epoch as epoch, encode(s.approver_set_sha256, 'hex') as sha256
         from node_presence p join node_sessions s on s.id = p.session_id
         where s.ended_at is null and p.last_seen_at >= now() - interval '${connectedWithinMs} ms' order by p.node_id`,
};

/** Against what is published now; null before core/0026. */
export async function readSetLag(db: Executor): Promise<(SetLag & { readonly epoch: number; readonly isPublished: boolean }) | null> {
  const nodes = await readNodeSets(db);
  if (nodes === null) return null;
  const published = await readPublishedQuorum(db);
  return { ...lagOf(nodes, published), epoch: Number(published.approverSetEpoch), isPublished: hasApprovers(published) };
}

/** false before core/0026: the check is left out then (LAG-015). */
export const recordsApproverSets = async (db: Executor): Promise<boolean> =>
  (await db.query<{ columns: number }>(recorded))[0]?.columns === 2;

/** Of every connected node; null before core/0026. */
export const readNodeSets = async (db: Executor): Promise<readonly NodeSet[] | null> =>
  (await recordsApproverSets(db)) ? db.query<NodeSet>(held) : null;
