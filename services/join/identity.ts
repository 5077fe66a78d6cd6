/**
 * The node that a join is for: made, or known and given its next identity. The next identity is the next generation, and ends what the
 * one before had: its commands, its certificates, and the joins that led to it (H-20).
 */
import { createHash } from 'node:crypto';
import type { NodeRole } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import { changeIdentity, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import type { CertificateRequest } from '../../pki/x509/index.ts';
import type { HardwareClaims } from '../../proto/index.ts';
import { cancelCommandsOf } from '../command-ends.ts';
import { revokeCertificates } from '../revocation.ts';

export const denied = (reason: string, message: string): ControlError =>
  new ControlError('PERMISSION_DENIED', message, { details: { reason } });

export const csrSha256 = ({ der }: CertificateRequest): Buffer => createHash('sha256').update(der).digest();

/** The earlier identities' joins are over: their requests, repeated by whoever has the keys, get no certificate of the new one. */
const closeTokens = {
  name: 'join-tokens-close',
  text: 'update join_tokens set used_csr_sha256 = null where used_by_node = $1 and id <> $2 and used_csr_sha256 is not null',
};
const closeEntries = {
  name: 'join-entries-close',
  text: 'update boot_entries set used_csr_sha256 = null where node_id = $1 and id <> $2 and used_csr_sha256 is not null',
};

export interface NextIdentity {
  readonly node: NodeFacts;
  readonly role: NodeRole;
  /** Id of the token or boot entry that this join uses. */
  readonly evidenceId: string;
  readonly reason: string;
  readonly now: number;
}

/** @returns the new generation @throws CONFLICT when the node changed since it was read */
export async function beginIdentity(tx: Executor, { node, role, evidenceId, reason, now }: NextIdentity): Promise<number> {
  const generation = await changeIdentity(tx, { node, state: 'active', role, now });
  if (generation === undefined)
    throw new ControlError('CONFLICT', `node ${node.id} changed meanwhile`, { details: { reason: 'node-changed' } });
  // Before the certificates, as issuing takes its locks.
  await tx.query(closeTokens, [node.id, evidenceId]);
  await tx.query(closeEntries, [node.id, evidenceId]);
  await cancelCommandsOf(tx, { nodeId: node.id, reason: `node ${reason}`, now });
  await revokeCertificates(tx, { nodeId: node.id, reason, now });
  return generation;
}

/** @throws PERMISSION_DENIED (node-not-active) for one that gets no identity before somebody says so */
export function assertMayJoin({ id, state }: NodeFacts): void {
  if (state === 'retired' || state === 'quarantined') throw denied('node-not-active', `node ${id} is ${state}`);
}

/** What a machine said of itself, as it is kept. */
export function hardwareJson(hardware: HardwareClaims | undefined): Record<string, unknown> {
  if (hardware === undefined) return {};
  const { machineId, systemUuid, systemSerial, macAddresses, architecture, kernel, cpus, memoryBytes } = hardware;
  return { machineId, systemUuid, systemSerial, macAddresses, architecture, kernel, cpus, memoryBytes: String(memoryBytes) };
}
