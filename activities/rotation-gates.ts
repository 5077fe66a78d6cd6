/**
 * The gates of a rotation as its activities judge them: facts from the database, rules from domain/rotation/gates.ts,
 * overrides from their table. Nothing a workflow or a message says opens a gate; only what is recorded does.
 */
import { judgeFleet, judgeProcesses, judgePublication, type Verdict } from '../domain/rotation/gates.ts';
import { namesKept, nextDelayMs, notYet, type Wait } from './not-yet.ts';
import type { OverrideRow, RootsView, RotationGatePorts } from './rotation-ports.ts';

export type GateName = 'processes' | 'fleet' | 'signers' | 'confirm';

export type GateReport =
  | { readonly kind: 'open'; readonly trustVersion: number }
  | {
      readonly kind: 'closed';
      readonly reason: string;
      readonly message: string;
      readonly behind: readonly string[];
      readonly count: number;
      readonly seenAt: number;
    };

export interface Overrides {
  readonly rows: readonly OverrideRow[];
  readonly abort: OverrideRow | undefined;
  readonly excluded: readonly string[];
  readonly isForced: (gate: GateName) => boolean;
}

export async function readOverrides(ports: Pick<RotationGatePorts, 'reads'>, rotationId: string): Promise<Overrides> {
  const rows = await ports.reads.overrides(rotationId);
  const forced = new Set(rows.filter((row) => row.kind === 'force').map((row) => row.subject));
  return {
    rows,
    abort: rows.find((row) => row.kind === 'abort'),
    excluded: rows.filter((row) => row.kind === 'exclude').map((row) => row.subject),
    isForced: (gate) => forced.has(gate),
  };
}

interface Judged {
  readonly verdict: Verdict;
  readonly trustVersion: number;
  /** How many are behind; `verdict.behind` names a few of them. */
  readonly count: number;
}

const open: Verdict = Object.freeze({ kind: 'open' });

/** Published, then every process (ROT-023, H-02). A force opens the second, never the first: a node must be able to get the roots. */
export async function judgeRollout(
  ports: RotationGatePorts,
  input: { view: RootsView; gate: GateName; overrides: Overrides },
): Promise<Judged> {
  const published = await ports.facts.publication();
  const publication = judgePublication({
    publishedVersion: published?.version ?? null,
    publishedDigest: published?.digest ?? null,
    expectedDigest: input.view.trustDigest,
  });
  if (publication.kind === 'closed' || published === null) {
    return { verdict: reworded(publication, input.gate, published?.version), trustVersion: published?.version ?? 0, count: 0 };
  }
  const trustVersion = published.version;
  if (input.overrides.isForced(input.gate)) return { verdict: open, trustVersion, count: 0 };
  const processes = await ports.facts.processes();
  const verdict = judgeProcesses(processes, {
    bundleDigest: input.view.bundleDigest,
    publishedVersion: trustVersion,
    now: await ports.facts.now(),
  });
  return { verdict, trustVersion, count: verdict.kind === 'closed' ? verdict.behind.length : 0 };
}

/** Every connected node holds `version`, those left out by name aside (ROT-020, H-01). */
export async function judgeNodes(
  ports: RotationGatePorts,
  input: { version: number; gate: GateName; overrides: Overrides },
): Promise<Judged> {
  const trustVersion = input.version;
  if (input.overrides.isForced(input.gate)) return { verdict: open, trustVersion, count: 0 };
  const facts = await ports.facts.fleet({ version: input.version, excluded: input.overrides.excluded });
  return { verdict: judgeFleet(facts, { version: input.version, now: await ports.facts.now() }), trustVersion, count: facts.behind };
}

/**
 * The answer of a waiting activity. A closed gate is thrown as NOT_YET until the caller's patience is used up; then it is
 * reported, so that the workflow can show who is behind.
 *
 * @param patienceMs null: wait until it opens
 */
export function answer(judged: Judged, input: { wait: Wait; patienceMs: number | null; now: number }): GateReport {
  const { verdict, trustVersion, count } = judged;
  if (verdict.kind === 'open') return { kind: 'open', trustVersion };
  const leftMs = input.patienceMs === null ? Number.POSITIVE_INFINITY : input.patienceMs - input.wait.elapsedMs;
  if (leftMs > 0) return notYet({ ...verdict, retryAfterMs: Math.min(nextDelayMs(input.wait), leftMs) }, input.wait);
  return {
    kind: 'closed',
    reason: verdict.reason,
    message: verdict.message,
    behind: verdict.behind.slice(0, namesKept),
    count: Math.max(count, verdict.behind.length),
    seenAt: input.now,
  };
}

/** Throws a closed verdict as NOT_YET: for the activities that act, which judge once more before they do. */
export function assertOpen(judged: Judged, wait: Wait): void {
  if (judged.verdict.kind === 'closed') notYet(judged.verdict, wait);
}

/** The rule speaks of the switch; after it the same facts mean something else. */
function reworded(verdict: Verdict, gate: GateName, version: number | undefined): Verdict {
  if (verdict.kind === 'open' || gate === 'processes' || verdict.reason !== 'not-published') return verdict;
  return { ...verdict, message: `the deployment still publishes trust version ${version ?? 0}, not the roots of the current bundle` };
}
