/**
 * One event of the audit trail and its hash: SHA-256(hash of the event before ‖ canonical JSON of this one). Shared by the writer
 * (services/audit.ts), the checkpoints (checkpoint.ts) and their verifier, so they cannot disagree.
 */
import { createHash } from 'node:crypto';
import { type CanonicalValue, canonicalJson } from './canonical-json.ts';

/** Whose trail an event belongs to unless it says otherwise: the operators' own. */
export const deploymentTenant = 'deployment';

export interface AuditEvent {
  /** Idempotency: one key, one event. */
  readonly key: string;
  readonly actor: string;
  /** `node.revoke`, `rotation.force`, … */
  readonly action: string;
  readonly subject: string;
  readonly details: Readonly<Record<string, CanonicalValue>>;
  /** Default: deploymentTenant. */
  readonly tenant?: string;
}

export interface AuditRow extends AuditEvent {
  readonly seq: number;
  readonly at: number;
  readonly prevHash: Uint8Array;
  readonly hash: Uint8Array;
}

/**
 * The hash of one event behind the one before. The deployment's own tenant is left out: events from before there were tenants keep
 * their hash, and an event moved from one trail into another has another.
 *
 * @throws MALFORMED for details that have no canonical form
 */
export function auditHash(prevHash: Uint8Array, event: AuditEvent & { readonly seq: number; readonly at: number }): Uint8Array {
  const { seq, key, at, actor, action, subject, details, tenant = deploymentTenant } = event;
  const content = { seq, key, at, actor, action, subject, details, ...(tenant === deploymentTenant ? {} : { tenant }) };
  return new Uint8Array(createHash('sha256').update(prevHash).update(canonicalJson(content)).digest());
}
