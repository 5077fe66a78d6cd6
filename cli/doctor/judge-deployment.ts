/** Processes, freshness, queues: what the database and Temporal say, as doctor judges it. Pure. */
import { about, type ProcessFact, processLiveWithinMs } from '../../domain/rotation/gates.ts';
import { type FleetAhead, isFleetAhead } from '../../services/freshness.ts';
import type { FailedSection } from '../../services/section-faults.ts';
import { error, type Finding, info, ok, warning } from './finding.ts';

/** What a deployment does not work without. */
const wanted: Readonly<Record<string, string>> = Object.freeze({
  api: 'nobody can join, renew or be told what waits',
  gateway: 'no daemon can connect',
  'worker-control': 'no workflow goes on',
  'worker-signing': 'no command can be signed',
});

export function judgeProcesses(processes: readonly ProcessFact[], now: number): Finding[] {
  const live = processes.filter((process) => now - process.lastSeenAt <= processLiveWithinMs);
  const missing = Object.entries(wanted).filter(([kind]) => !live.some((process) => process.kind === kind));
  const digests = new Set(live.flatMap((process) => (process.bundleDigest === null ? [] : [process.bundleDigest])));
  const findings = missing.map(([kind, consequence]) =>
    error(
      'process.missing',
      `no ${kind} is alive (${lastSeen(processes, kind, now)}): ${consequence}`,
      'better-compute start, or start the process and read its log',
    ),
  );
  if (digests.size > 1) {
    findings.push(
      warning(
        'process.bundles-differ',
        `live processes run ${digests.size} different key bundles`,
        'give every process the current bundle; a process follows its file by itself',
      ),
    );
  }
  return findings.length > 0 ? findings : [ok('processes', `${live.length} process(es) alive`)];
}

function lastSeen(processes: readonly ProcessFact[], kind: string, now: number): string {
  const seen = processes.filter((process) => process.kind === kind).map((process) => process.lastSeenAt);
  return seen.length === 0 ? 'none has ever reported' : `last seen ${about(now - Math.max(...seen))} ago`;
}

export interface FreshnessFacts {
  readonly newest: { readonly generation: number; readonly digest: string } | null;
  readonly bundle: { readonly generation: number; readonly digest: string } | null;
  readonly fleet: FleetAhead;
}

/** H-07, told apart by which side is the older one. */
export function judgeFreshness({ newest, bundle, fleet }: FreshnessFacts): Finding[] {
  const findings: Finding[] = [];
  if (bundle !== null && newest !== null && bundle.generation < newest.generation) {
    findings.push(
      error(
        'freshness.bundle',
        `the key bundle here is generation ${bundle.generation}, the deployment has run ${newest.generation}`,
        'restore the newest bundle: docs/runbooks/after-restoring-a-backup.md',
      ),
    );
  }
  if (bundle !== null && newest !== null && bundle.generation === newest.generation && bundle.digest !== newest.digest) {
    findings.push(
      error(
        'freshness.forked',
        `two different key bundles call themselves generation ${bundle.generation}`,
        'keep one and restore it everywhere',
      ),
    );
  }
  if (isFleetAhead(fleet)) {
    findings.push(
      error(
        'freshness.database',
        `${fleet.ahead} connected node(s) hold trust version ${fleet.highest}, the database published only ${fleet.recorded}: it was restored from an older copy`,
        `restore the newest copy, or publish above ${fleet.highest} with BETTER_COMPUTE_TRUST_VERSION`,
      ),
    );
  }
  return findings.length > 0 ? findings : [ok('freshness', 'bundle, database and fleet are of one age')];
}

export interface TemporalFacts {
  readonly address: string;
  /** Registered names → type, as the server spells it. */
  readonly attributes: Readonly<Record<string, string>>;
  readonly wantedAttributes: readonly string[];
  /** Queue → pollers seen lately. */
  readonly pollers: Readonly<Record<string, number>>;
  readonly problems: readonly string[];
}

export function judgeTemporal(facts: TemporalFacts): Finding[] {
  const missing = facts.wantedAttributes.filter((name) => !Object.hasOwn(facts.attributes, name));
  const findings: Finding[] = [];
  if (missing.length > 0) {
    const fix = missing.map((name) => `temporal operator search-attribute create --name ${name} --type <type>`).join('; ');
    findings.push(
      error('temporal.search-attributes', `search attribute(s) ${missing.join(', ')} are not registered: workflows would not go on`, fix),
    );
  }
  for (const [queue, pollers] of Object.entries(facts.pollers)) {
    if (pollers === 0) findings.push(error('temporal.no-poller', `no worker polls ${queue}`, 'start its worker and read its log'));
  }
  for (const workflowId of facts.problems) {
    findings.push(
      error(
        'temporal.workflow-problem',
        `workflow ${workflowId} cannot run its code`,
        `temporal workflow show --workflow-id ${workflowId}`,
      ),
    );
  }
  return findings.length > 0 ? findings : [ok('temporal', `Temporal at ${facts.address} answers, every queue has a worker`)];
}

export const judgeTrust = (trust: { version: number; connected: number; behind: number } | null): Finding =>
  trust === null
    ? warning('trust.unpublished', 'no process has published a trust bundle yet', 'start the api')
    : trust.behind > 0
      ? info(
          'trust.behind',
          `${trust.behind} of ${trust.connected} connected node(s) hold less than trust version ${trust.version}`,
          'better-compute nodes list',
        )
      : ok('trust', `trust version ${trust.version} is held by all ${trust.connected} connected node(s)`);

const sectionsShown = 5;

/** What machines were told and do not do, in their own words. */
export function judgeSections(failed: readonly FailedSection[]): Finding[] {
  if (failed.length === 0) return [];
  const named = failed
    .slice(0, sectionsShown)
    .map(({ nodeId, section, detail }) => `${nodeId} ${section}${detail === '' ? '' : ` (${detail})`}`);
  const more = failed.length > sectionsShown ? ` and ${failed.length - sectionsShown} more` : '';
  return [
    warning(
      'nodes.section-failed',
      `${failed.length} section(s) of desired state are not applied: ${named.join(', ')}${more}`,
      `better-compute nodes show ${failed[0]?.nodeId}`,
    ),
  ];
}
