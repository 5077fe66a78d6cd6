/** The gates of the CLI's switch and drop: domain/rotation/gates.ts over the facts of the deployment, in the order of ROT-024. */
import { ControlError } from '../../../domain/errors.ts';
import {
  dropOpensAt,
  judgeDrop,
  judgeFleet,
  judgeProcesses,
  judgePublication,
  type RotationTimes,
  type Verdict,
} from '../../../domain/rotation/gates.ts';
import { bundleDigest, type PkiBundle } from '../../../pki/bundle/index.ts';
import { trustContentDigest, trustContentOf } from '../../../pki/trust/index.ts';
import type { Deployment, Published } from './deployment.ts';
import { quorumOf } from './published-quorum.ts';

export interface SwitchGateInput {
  readonly bundle: PkiBundle;
  readonly rotationId: string;
  readonly deployment: Deployment;
}

/**
 * @throws INVALID_STATE while the deployment publishes something else, a process runs another bundle, or a connected node
 *   is behind
 */
export async function switchGate({ bundle, rotationId, deployment }: SwitchGateInput): Promise<void> {
  const published = await deployment.published();
  const expectedDigest = digestBeside(bundle, published);
  assertOpen(
    judgePublication({ publishedVersion: published?.version ?? null, publishedDigest: published?.digest ?? null, expectedDigest }),
  );
  const version = published?.version ?? 0;
  const now = await deployment.now();
  assertOpen(judgeProcesses(await deployment.processes(), { bundleDigest: bundleDigest(bundle), publishedVersion: version, now }), version);
  const excluded = await deployment.excludedNodes(rotationId);
  assertOpen(judgeFleet(await deployment.fleet(version, excluded), { version, now }), version);
}

/** What this bundle would publish beside the quorum that is published now (A-PKI-19). */
export const digestBeside = (bundle: Parameters<typeof trustContentOf>[0], published: Published | null): string =>
  trustContentDigest({ ...trustContentOf(bundle), ...(published === null ? {} : { quorum: quorumOf(published.body) }) });

export interface DropGateInput {
  readonly bundle: PkiBundle;
  readonly deployment: Deployment;
  readonly times: RotationTimes;
}

/**
 * @returns when the drop opened, and the database's time at which it was judged
 * @throws INVALID_STATE before that (H-03), or while something is still signed under the old root (H-05)
 */
export async function dropGate({ bundle, deployment, times }: DropGateInput): Promise<{ opensAt: number; now: number }> {
  const { rotation } = bundle.commandRoots;
  if (rotation === null || rotation.switchedAt === null)
    throw new ControlError('INTERNAL', 'the gate of a drop was asked before the switch');
  const now = await deployment.now();
  const facts = { switchedAt: rotation.switchedAt, lastWorkerNotAfter: await deployment.lastWorkerNotAfter(rotation.oldRoot), now };
  assertOpen(judgeDrop(facts, times));
  const left = await deployment.signedUnder(rotation.oldRoot);
  if (left > 0) {
    throw new ControlError('INVALID_STATE', `not dropping: ${left} command(s) or desired state(s) are still signed under the old root`, {
      details: { reason: 'still-signed', left, hint: 'they are signed again within minutes; better-compute stuck says who is waited for' },
    });
  }
  return { opensAt: dropOpensAt(facts, times), now };
}

function assertOpen(verdict: Verdict, version?: number): void {
  if (verdict.kind === 'open') return;
  const heading = version === undefined ? '' : `trust version ${version} is published, but `;
  throw new ControlError('INVALID_STATE', `${heading}${verdict.message}`, { details: { reason: verdict.reason, behind: verdict.behind } });
}
