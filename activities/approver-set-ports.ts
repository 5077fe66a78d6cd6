/** What a change of the approver set needs from the outside: the published set, the table of changes, what the fleet enforces. */
import type { ApproverFleetFacts } from '../domain/rotation/approver-set-gate.ts';
import type { QuorumFields } from '../pki/trust/index.ts';
import type { PublishedQuorumPort } from '../services/override-approval.ts';
import type { Clock, OverrideWriterPort, RotationReadsPort } from './rotation-ports.ts';

export interface ApproverSetsPort {
  /** What machines are given now, with the trust version that carries it. */
  published(): Promise<{ readonly quorum: QuorumFields; readonly version: number }>;
  /** The last set that was introduced properly: the one whose approvers must have signed the next. */
  introduced(): Promise<QuorumFields>;
  /**
   * Stores a change whose signatures it has verified; every api publishes it within seconds. The same one again changes nothing.
   *
   * @throws INVALID_STATE stale-epoch, approver-set-unsigned; INVALID_CONFIG
   */
  store(input: { quorum: QuorumFields; actor: string }): Promise<void>;
  fleet(input: { epoch: number; sha256: string | null; excluded: readonly string[] }): Promise<ApproverFleetFacts>;
  clock(): Promise<number>;
}

export interface ApproverSetPorts extends Clock {
  readonly sets: ApproverSetsPort;
  readonly quorum: PublishedQuorumPort;
  readonly reads: RotationReadsPort;
  readonly overrides: OverrideWriterPort;
}

export interface ApproverSetEvidenceInput {
  readonly rotationId: string;
  /** Of the set that was introduced; the one before it stands in the table. */
  readonly epoch: number;
  readonly actor: string;
}

export interface ApproverSetSigningPorts {
  readonly evidence: { write(input: ApproverSetEvidenceInput): Promise<void> };
}
