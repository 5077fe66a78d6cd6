/** The end of a demonstration: its evidence in a file, checked as anyone could check it, offline and against the pin of the bundle. */
import { join } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import { encodeEvidenceFile } from '../../../pki/audit/evidence-file.ts';
import { type EvidenceVerdict, verifyRotationEvidence } from '../../../pki/audit/verify-evidence.ts';
import { replaceWhole } from '../../../runtime/bundle-file-store.ts';
import type { OperatorClient } from '../../api-client.ts';
import { readBundlePins } from '../../bundle-pins.ts';
import { fetchEvidence } from '../../commands/rotation/evidence.ts';
import type { Stack } from '../stack.ts';

export interface CheckedEvidence {
  readonly file: string;
  readonly verdict: EvidenceVerdict;
}

/** @throws AUDIT_TAMPERED when a check fails */
export async function checkEvidence({
  stack,
  api,
  rotationId,
  minOverlapMs,
}: {
  stack: Stack;
  api: OperatorClient;
  rotationId: string;
  minOverlapMs: number;
}): Promise<CheckedEvidence> {
  const { file } = await fetchEvidence(api, rotationId);
  const path = join(stack.home.root, 'evidence', `${rotationId.replaceAll('/', '-')}.json`);
  await replaceWhole(path, encodeEvidenceFile(file));
  const pin = readBundlePins(stack.home.bundle, stack.facts.secret).audit;
  const verdict = verifyRotationEvidence(file.documents, { auditKey: file.auditKey, pin, minOverlapMs });
  const [problem] = verdict.problems;
  if (problem === undefined) return { file: path, verdict };
  throw new ControlError('AUDIT_TAMPERED', `the evidence does not hold: ${problem.stage} ${problem.message}`, {
    details: { reason: 'evidence-not-valid', file: path },
  });
}
