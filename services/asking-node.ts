/**
 * Which node asks a broker (WID-038, SEC-011), from the chain that its session proved: a certificate of this deployment, issued here, not
 * revoked, of an active node in its present generation. The rows decide, as they do for a renewal: a certificate that chains but was not
 * issued here says nothing.
 */
import { ControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import { readNodeFacts } from '../drizzle/queries/nodes.ts';
import { type Certificate, type NodeIdentity, nodeIdentityOf, verifyChain } from '../pki/x509/index.ts';
import type { GatewayPeer } from './gateway-port.ts';
import { findCertificateRow, issuerOf } from './node-certs.ts';

export interface AskingNodeOptions {
  readonly db: Database;
  readonly trustDomain: string;
  /** DER of every certificate of the node CA's key. */
  readonly anchors: readonly Uint8Array[];
  /** SPKI of the node CA. */
  readonly nodeCa: Uint8Array;
  /** The database's. */
  readonly now: number;
}

export interface AskingNode {
  readonly leaf: Certificate;
  readonly identity: NodeIdentity;
  readonly generation: number;
}

/** @throws what verifyChain and nodeIdentityOf throw; PERMISSION_DENIED */
export async function proveAskingNode({ chain }: GatewayPeer, options: AskingNodeOptions): Promise<AskingNode> {
  const { db, anchors, nodeCa, trustDomain, now } = options;
  const { leaf } = verifyChain([...chain], { anchors, now, purpose: 'client' });
  const identity = nodeIdentityOf(leaf, trustDomain);
  const row = await findCertificateRow(db, issuerOf(nodeCa), leaf.serial);
  if (row?.der == null || row.nodeId !== identity.nodeId || !Buffer.from(row.der).equals(leaf.der))
    throw denied('certificate not issued here');
  if (row.revokedAt !== null) throw denied('certificate revoked');
  const node = (await readNodeFacts(db, [identity.nodeId])).get(identity.nodeId);
  if (node?.state !== 'active' || node.identityGeneration !== row.generation) throw denied('node not active');
  return { leaf, identity, generation: row.generation };
}

const denied = (message: string): ControlError => new ControlError('PERMISSION_DENIED', message, { details: { reason: 'asking-node' } });
