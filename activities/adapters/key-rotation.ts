/** The ports of a key's exchange over PostgreSQL, the key bundle and the folder of the gateways. */
import { createKeyEvidence } from '../../pki/audit/key-evidence.ts';
import { findUnfinishedRotation, readEvidence, readOverrides } from '../../services/rotations.ts';
import type { KeyEvidencePort, KeyRotationPorts } from '../key-rotation-ports.ts';
import type { Clock } from '../rotation-ports.ts';
import { createBundleSteps, type RunningBundle } from './bundle-steps.ts';
import { createExchangedKeys, type ExchangedKeysOptions } from './exchanged-keys.ts';
import { auditSignerOf, recordOnce } from './rotation.ts';

export interface KeyRotationPortsOptions extends Clock, Omit<ExchangedKeysOptions, 'steps'> {
  readonly running: RunningBundle;
}

export function createKeyRotationPorts({ now, running, ...options }: KeyRotationPortsOptions): KeyRotationPorts {
  const { db, clock } = options;
  const steps = createBundleSteps({ db, running, clock });
  return {
    now,
    clock,
    key: createExchangedKeys({ ...options, steps }),
    reads: { overrides: (rotationId) => readOverrides(db, rotationId) },
    evidence: createEvidencePort(options, running),
  };
}

const createEvidencePort = ({ db }: Pick<ExchangedKeysOptions, 'db'>, running: RunningBundle): KeyEvidencePort => ({
  read: (rotationId) => readEvidence(db, rotationId),
  unfinished: (workflowId) => findUnfinishedRotation(db, workflowId),
  write: async (facts) => {
    const signer = auditSignerOf(await running.refresh());
    const earlier = await readEvidence(db, facts.rotationId);
    const signed = await createKeyEvidence({ signer, facts, previous: earlier.at(-1) ?? null });
    await recordOnce(db, { ...signed, rotationId: facts.rotationId, stage: facts.stage, at: facts.at, actor: facts.actor });
  },
});
