/**
 * H-08: once an approver set is published, whoever forces a gate, leaves a node out or takes a rotation back needs the signatures of its
 * threshold over exactly that: the rotation, the kind, what it is about, the reason, and this deployment. The set is the published one
 * and the trust domain this process's own, whatever a message says.
 */
import { ControlError } from '../domain/errors.ts';
import { countSigners } from '../pki/quorum/index.ts';
import type { QuorumFields } from '../pki/trust/index.ts';
import { signingInput } from '../proto/index.ts';

export interface OverrideApproval {
  readonly kid: string;
  /** 64 bytes r‖s, base64url. */
  readonly sig: string;
}

export interface PublishedQuorumPort {
  /** A set without keys: none is published, and nobody is asked. */
  published(): Promise<QuorumFields>;
  /** Of this process's own configuration. @throws MISSING_ENV */
  trustDomain(): string;
}

export interface OverrideToApprove {
  readonly rotationId: string;
  readonly kind: string;
  readonly subject: string;
  readonly reason: string;
  readonly approvals?: readonly OverrideApproval[];
}

/**
 * @returns the distinct approvers who signed, for the audit trail
 * @throws PERMISSION_DENIED with how many are missing and the command that signs
 */
export async function assertOverrideApproved(port: PublishedQuorumPort, override: OverrideToApprove): Promise<readonly string[]> {
  const quorum = await port.published();
  if (quorum.approverKeys.length === 0) return [];
  const { rotationId, kind, subject, reason, approvals = [] } = override;
  const { kids, refused } = countSigners({
    quorum,
    input: signingInput('rotation-override', [rotationId, kind, subject, reason, port.trustDomain()]),
    signatures: approvals.map(({ kid, sig }) => ({ kid, sig: Buffer.from(sig, 'base64url') })),
  });
  const needed = Math.max(1, quorum.approverThreshold);
  if (kids.length >= needed) return kids;
  const why = refused.map(({ kid, reason: fault }) => `${kid.slice(0, 16)}: ${fault}`).join(', ');
  throw new ControlError(
    'PERMISSION_DENIED',
    `${kind} needs the signatures of ${needed} approver(s), ${kids.length} hold${why === '' ? '' : ` (${why})`}`,
    {
      details: {
        reason: 'override-not-approved',
        needed,
        have: kids.length,
        refused,
        hint: `each approver signs rotation ${rotationId}: better-compute batch sign-override; hand the files over with --approvals`,
      },
    },
  );
}
