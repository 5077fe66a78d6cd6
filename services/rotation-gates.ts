/**
 * The facts behind the gates of a rotation, one statement each, and the verdicts over them (domain/rotation/gates.ts). The
 * workflow's activities, the CLI and doctor read them here, so they never disagree.
 */
import { judgeDrop, judgeFleet, judgeProcesses, judgePublication, type RotationTimes, type Verdict } from '../domain/rotation/gates.ts';
import type { Database, Executor } from '../drizzle/client.ts';
import { connectedNodeVersions, fleetFacts } from '../drizzle/queries/sessions.ts';
import { publishedTrust } from '../drizzle/queries/trust.ts';
import { listProcesses } from './processes.ts';
import { lastWorkerNotAfter } from './worker-keys.ts';

export { connectedNodeVersions, fleetFacts, lastWorkerNotAfter, listProcesses, publishedTrust };

/** ROT-023: does the deployment publish the content of the bundle at hand? */
export async function publicationVerdict(db: Executor, expectedDigest: string): Promise<Verdict> {
  const published = await publishedTrust(db);
  return judgePublication({ publishedVersion: published?.version ?? null, publishedDigest: published?.digest ?? null, expectedDigest });
}

/** H-02: does every live process run the bundle, or hand out the published version? */
export async function processesVerdict(
  db: Executor,
  expected: { bundleDigest: string; publishedVersion: number; now: number },
): Promise<Verdict> {
  return judgeProcesses(await listProcesses(db), expected);
}

/** ROT-020: does every connected node hold the version? */
export async function fleetVerdict(
  db: Executor,
  expected: { version: number; now: number; excluded?: readonly string[] },
): Promise<Verdict> {
  return judgeFleet(await fleetFacts(db, expected), expected);
}

/** H-03: is the overlap over, and every worker key of the old root dead? */
export async function dropVerdict(
  db: Database,
  facts: { rootId: string; switchedAt: number; now: number },
  times: RotationTimes,
): Promise<Verdict> {
  return judgeDrop({ switchedAt: facts.switchedAt, lastWorkerNotAfter: await lastWorkerNotAfter(db, facts.rootId), now: facts.now }, times);
}
