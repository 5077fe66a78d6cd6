/** Nodes: the rows a join creates, and what the gateway and the queue need to know of one. */
import type { NodeRole } from '../../domain/commands/kinds.ts';
import type { Executor } from '../client.ts';

export type NodeState = 'active' | 'quarantined' | 'revoked' | 'retired';

export interface NodeFacts {
  readonly id: string;
  readonly siteId: string;
  readonly role: NodeRole;
  readonly state: NodeState;
  /** Raised whenever the identity ends: certificates and commands of an older one are void. */
  readonly identityGeneration: number;
}

const factsColumns = `id, site_id as "siteId", role, state, identity_generation as "identityGeneration"`;

const findNodes = { name: 'nodes-facts', text: `select ${factsColumns} from nodes where id = any($1::text[])` };

/** The facts of those that exist. */
export async function readNodeFacts(db: Executor, ids: readonly string[]): Promise<Map<string, NodeFacts>> {
  const rows = await db.query<NodeFacts>(findNodes, [ids]);
  return new Map(rows.map((row) => [row.id, row]));
}

const lockOne = { name: 'nodes-lock', text: `select ${factsColumns} from nodes where id = $1 for no key update` };

/** Locks the row to the end of the transaction: everything that changes a node's identity meets here. */
export async function lockNode(tx: Executor, id: string): Promise<NodeFacts | undefined> {
  return (await tx.query<NodeFacts>(lockOne, [id]))[0];
}

export interface NewNode {
  readonly id: string;
  readonly siteId: string;
  readonly role: NodeRole;
  /** Default: the default tenant. */
  readonly tenantId?: string;
  readonly hostname?: string;
  readonly hardware?: Readonly<Record<string, unknown>>;
  readonly now: number;
}

const insertNode = {
  name: 'nodes-insert',
  text: `insert into nodes (id, site_id, role, hostname, hardware, created_at, updated_at, tenant_id)
         values ($1, $2, $3, $4, $5, $6, $6, $7) on conflict (id) do nothing returning id`,
};
const insertSite = { name: 'sites-insert', text: 'insert into sites (id, created_at) values ($1, $2) on conflict (id) do nothing' };
const insertQueue = {
  name: 'node-queue-insert',
  text: 'insert into node_queue (node_id, generation) values ($1, 1) on conflict (node_id) do nothing',
};

/** A node with its site and its empty log. False when the id is taken. */
export async function insertNodeRow(tx: Executor, node: NewNode): Promise<boolean> {
  const now = new Date(node.now);
  await tx.query(insertSite, [node.siteId, now]);
  const { id, siteId, role, hostname = '', hardware = {}, tenantId = 'default' } = node;
  const rows = await tx.query(insertNode, [id, siteId, role, hostname, JSON.stringify(hardware), now, tenantId]);
  if (rows.length === 0) return false;
  await tx.query(insertQueue, [node.id]);
  return true;
}

export interface IdentityChange {
  /** As read under lockNode. */
  readonly node: NodeFacts;
  readonly state: NodeState;
  /** Default: it stays what it was. */
  readonly role?: NodeRole;
  readonly now: number;
}

const changeState = {
  name: 'nodes-identity',
  text: `with changed as (update nodes set state = $4, role = $6, identity_generation = identity_generation + 1, updated_at = $5
                          where id = $1 and state = $2 and identity_generation = $3 returning id, identity_generation)
         insert into node_queue as q (node_id, generation)
         select id, case when $4 = 'active' then identity_generation end from changed
         on conflict (node_id) do update set generation = excluded.generation
         returning (select identity_generation from changed) as generation`,
};

/**
 * Ends the node's identity and begins the next: generation + 1, the log closed to commands of the old one. One conditional
 * UPDATE on state and generation (H-20). Sessions stay: the gateway that holds one tells the node why it ends (REV-013).
 *
 * @returns the new generation; undefined when the node was changed meanwhile
 */
export async function changeIdentity(tx: Executor, { node, state, role = node.role, now }: IdentityChange): Promise<number | undefined> {
  const values = [node.id, node.state, node.identityGeneration, state, new Date(now), role];
  return (await tx.query<{ generation: number }>(changeState, values))[0]?.generation;
}

export interface StoredSpec {
  readonly nodeId: string;
  /** Of the spec; 0 before the first. */
  readonly generation: number;
  readonly spec: Readonly<Record<string, unknown>>;
  /** An encoded DesiredStateBody; null before the first signed one. */
  readonly body: Uint8Array | null;
  /** An encoded Signature. */
  readonly signature: Uint8Array | null;
}

const readSpec = {
  name: 'nodes-spec',
  text: `select id as "nodeId", generation, spec, spec_body as body, spec_signature as signature from nodes where id = $1`,
};

/** What the gateway relays as desired state (SPEC-007). undefined for an unknown node. */
export async function findStoredSpec(db: Executor, nodeId: string): Promise<StoredSpec | undefined> {
  return (await db.query<StoredSpec>(readSpec, [nodeId]))[0];
}

const newerSpecs = {
  name: 'nodes-newer-specs',
  text: `select n.id as "nodeId", n.generation, n.spec_body as body, n.spec_signature as signature
         from unnest($1::text[], $2::bigint[]) as held(id, generation) join nodes n on n.id = held.id
         where n.generation > held.generation and n.spec_body is not null and n.spec_signature is not null`,
};

/** Of these nodes, the signed specs of those whose generation is above the one that is named. */
export const findNewerSpecs = (
  db: Executor,
  held: readonly { readonly nodeId: string; readonly generation: number }[],
): Promise<{ nodeId: string; generation: number; body: Uint8Array; signature: Uint8Array }[]> =>
  db.query(newerSpecs, [held.map(({ nodeId }) => nodeId), held.map(({ generation }) => generation)]);

const replaceCapabilities = {
  name: 'nodes-capabilities',
  text: `update nodes set labels = next.labels, updated_at = $3
         from (select coalesce((select jsonb_object_agg(key, value) from jsonb_each((select labels from nodes where id = $1))
                                where key not like 'bc.dev/cap.%'), '{}') ||
                      coalesce((select jsonb_object_agg('bc.dev/cap.' || name, '1') from unnest($2::text[]) as name), '{}') as labels) as next
         where id = $1 and nodes.labels <> next.labels`,
};

/** The capability labels of a node, replaced as a set; nothing is written when they are what they were (SKEW-005). */
export async function writeCapabilityLabels(
  tx: Executor,
  input: { nodeId: string; capabilities: readonly string[]; now: number },
): Promise<void> {
  await tx.query(replaceCapabilities, [input.nodeId, input.capabilities, new Date(input.now)]);
}
