/** The quorum fields of what is published: a command that knows only the database judges beside them (A-PKI-19). */

import type { QuorumFields } from '../../../pki/trust/index.ts';
import { decodeMessage, TrustBundleSchema } from '../../../proto/index.ts';

/** @param body an encoded TrustBundle, as stored */
export function quorumOf(body: Uint8Array): QuorumFields {
  const bundle = decodeMessage(TrustBundleSchema, body, 'trustBundle');
  return {
    approverKeys: bundle.approverKeys.map(({ kid, spkiDer }) => ({ kid, spki: spkiDer })),
    approverThreshold: bundle.approverThreshold,
    tiers: bundle.quorumTiers.map(({ maxScopeSize, threshold }) => ({ maxScopeSize, threshold })),
    unbatchedDestructivePerHour: bundle.unbatchedDestructivePerHour,
    approverSetSignatures: bundle.approverSetSignatures.map(({ kid, sig }) => ({ kid, sig })),
    approverSetEpoch: bundle.approverSetEpoch,
  };
}
