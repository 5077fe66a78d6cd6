/**
 * The gates of a rotation: may the deployment switch, may it drop? Each is a pure function of facts that one query each
 * brings (services/rotation-gates.ts), so the workflow, the activity that acts, the CLI and doctor reach the same verdict from
 * the same facts. A gate never passes on an empty set (H-01).
 */
import { connectedWithinMs } from '../session/presence.ts';
import { day, hour, minute, second, showInstant } from '../time.ts';

/** How long two roots overlap, and how long a worker key lives. Production values are the only default. */
export interface RotationTimes {
  /** From switch to drop at least (ROT-008). */
  readonly overlapMs: number;
  /** Added to the last notAfter of a worker certificate under the old root (H-03). */
  readonly dropMarginMs: number;
  /** Longest life of a worker certificate (SIGN-003). */
  readonly workerLifetimeMs: number;
}

export const productionTimes: RotationTimes = Object.freeze({
  overlapMs: day,
  dropMarginMs: 120 * second,
  workerLifetimeMs: day,
});

export type Verdict =
  | { readonly kind: 'open' }
  | { readonly kind: 'closed'; readonly reason: string; readonly message: string; readonly behind: readonly string[] };

const open: Verdict = Object.freeze({ kind: 'open' });
const closed = (reason: string, message: string, behind: readonly string[] = []): Verdict => ({ kind: 'closed', reason, message, behind });

export interface PublicationFacts {
  readonly publishedVersion: number | null;
  readonly publishedDigest: string | null;
  /** Digest of what the bundle at hand would publish. */
  readonly expectedDigest: string;
}

/** The deployment publishes what this bundle holds (ROT-023). */
export function judgePublication(facts: PublicationFacts): Verdict {
  if (facts.publishedVersion === null) return closed('nothing-published', 'no process has published a trust bundle yet');
  if (facts.publishedDigest === facts.expectedDigest) return open;
  return closed(
    'not-published',
    `Not switching: the deployment still publishes trust version ${facts.publishedVersion} without the new root`,
  );
}

export interface ProcessFact {
  readonly id: string;
  readonly kind: string;
  /** null for a process that does not hold the bundle (a gateway reads the published state instead). */
  readonly bundleDigest: string | null;
  readonly publishedVersionSeen: number | null;
  readonly lastSeenAt: number;
}

/** A process that missed this many heartbeats is gone; its keys die with it. */
export const processLiveWithinMs = 30 * second;

/** Every live control-plane process runs this bundle, or has seen this version published (H-02). */
export function judgeProcesses(
  processes: readonly ProcessFact[],
  expected: { bundleDigest: string; publishedVersion: number; now: number },
): Verdict {
  const live = processes.filter((p) => expected.now - p.lastSeenAt <= processLiveWithinMs);
  if (!live.some((p) => p.bundleDigest !== null)) {
    return closed('no-process', 'no live process that holds the key bundle has reported which one it runs');
  }
  const behind = live.filter((p) =>
    p.bundleDigest === null ? (p.publishedVersionSeen ?? 0) < expected.publishedVersion : p.bundleDigest !== expected.bundleDigest,
  );
  if (behind.length === 0) return open;
  const names = behind.map((p) => `${p.kind} ${p.id}`);
  return closed('processes-behind', `${behind.length} of ${live.length} process(es) do not run this bundle yet (${sample(names)})`, names);
}

export interface GatewayFact {
  readonly id: string;
  readonly kind: string;
  /** null for one that does not report it. */
  readonly servingSerial: string | null;
  readonly lastSeenAt: number;
}

/** Every live gateway presents the certificate of this serial. */
export function judgeGateways(processes: readonly GatewayFact[], expected: { serial: string; now: number }): Verdict {
  const live = processes.filter((p) => p.kind === 'gateway' && expected.now - p.lastSeenAt <= processLiveWithinMs);
  if (live.length === 0) return closed('no-gateway', 'no live gateway has reported which certificate it presents');
  const names = live.filter((p) => p.servingSerial !== expected.serial).map((p) => p.id);
  if (names.length === 0) return open;
  return closed('gateways-behind', `${names.length} of ${live.length} gateway(s) do not present it yet (${sample(names)})`, names);
}

export interface FleetFacts {
  readonly connected: number;
  readonly behind: number;
  /** Up to a few of those behind, the ones that never reported first. */
  readonly sample: readonly { readonly nodeId: string; readonly trustVersion: number | null; readonly daemonVersion: string }[];
  readonly knownNodes: number;
  readonly absentNodes: number;
  /** Newest write of any session row; null when there is none. Old: the writer stalled. */
  readonly lastPresenceWriteAt: number | null;
}

/** Every connected node holds `version` (ROT-020, ROT-021, ROT-025). NULL, 0 and absent all count as behind. */
export function judgeFleet(facts: FleetFacts, expected: { version: number; now: number }): Verdict {
  if (facts.connected === 0) {
    return closed(
      'no-connected-node',
      `no connected daemon confirms trust version ${expected.version} (${facts.knownNodes} known node(s))`,
    );
  }
  if (facts.lastPresenceWriteAt === null || expected.now - facts.lastPresenceWriteAt > connectedWithinMs) {
    return closed('presence-stalled', 'no gateway has written a session row for 2 minutes: what is known of the fleet is old');
  }
  if (facts.behind === 0) return open;
  const names = facts.sample.map((node) =>
    node.trustVersion === null || node.trustVersion === 0
      ? `${node.nodeId} does not report (daemon ${node.daemonVersion})`
      : `${node.nodeId} at ${node.trustVersion}`,
  );
  return closed(
    'nodes-behind',
    `${facts.behind} of ${facts.connected} connected node(s) have not applied it (${sample(names)})`,
    facts.sample.map((node) => node.nodeId),
  );
}

/** The earliest drop (H-03): the overlap after the switch, and after every worker key of the old root has died. */
export function dropOpensAt(facts: { switchedAt: number; lastWorkerNotAfter: number | null }, times: RotationTimes): number {
  const keysDead = facts.lastWorkerNotAfter === null ? 0 : facts.lastWorkerNotAfter + times.dropMarginMs;
  return Math.max(facts.switchedAt + times.overlapMs, keysDead);
}

export function judgeDrop(facts: { switchedAt: number; lastWorkerNotAfter: number | null; now: number }, times: RotationTimes): Verdict {
  const opensAt = dropOpensAt(facts, times);
  return facts.now >= opensAt
    ? open
    : closed('drop-too-early', `the old root can be dropped from ${showInstant(opensAt)} (in ${about(opensAt - facts.now)})`);
}

const sample = (names: readonly string[]): string => (names.length > 5 ? `${names.slice(0, 5).join(', ')}, …` : names.join(', '));

/** Rough duration for people: "23 h 59 min", "41 s". */
export function about(ms: number): string {
  if (ms < minute) return `${Math.max(0, Math.ceil(ms / second))} s`;
  if (ms < hour) return `${Math.floor(ms / minute)} min ${Math.floor((ms % minute) / second)} s`;
  return `${Math.floor(ms / hour)} h ${Math.floor((ms % hour) / minute)} min`;
}
