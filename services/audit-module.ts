/** The audit module of a deployment's options (KEY-035): the audit key, and what it does with it. */
import type { SigningKey } from '../pki/bundle/types.ts';
import { type CheckpointMade, type CheckpointOptions, checkpointAudit } from './audit-checkpoints.ts';

export interface AuditModule {
  readonly name: 'audit';
  /** false: the bundle was made before there was an audit key (KEY-036). Events are chained all the same, and nothing is sealed. */
  readonly seals: boolean;
  /** One run of the hourly schedule (AUD-003). */
  checkpoint(options: Omit<CheckpointOptions, 'signer'>): Promise<CheckpointMade[]>;
}

/** @param signer bundle.auditSigning, as the bundle has it */
export const auditModule = ({ signer }: { readonly signer: Pick<SigningKey, 'signer'> | undefined }): AuditModule =>
  Object.freeze({
    name: 'audit',
    seals: signer !== undefined,
    checkpoint: async (options: Omit<CheckpointOptions, 'signer'>) =>
      signer === undefined ? [] : checkpointAudit({ ...options, signer: signer.signer() }),
  });
