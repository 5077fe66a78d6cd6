/** Machines as doctor judges them: sites that nobody speaks for, passwords that are half changed, machines that wait for a person. Pure. */
import { runSteps } from '../../domain/metal/steps.ts';
import { about } from '../../domain/rotation/gates.ts';
import type { MachineHealth, OpenRunFact } from '../../services/metal/health.ts';
import { plain } from '../format.ts';
import { error, type Finding, info, ok, warning } from './finding.ts';

const named = 5;
const list = (names: readonly string[]): string =>
  names.length <= named ? names.join(', ') : `${names.slice(0, named).join(', ')} and ${names.length - named} more`;

/** Nothing is said of a deployment without machines. */
export function judgeMachines(health: MachineHealth, { machines, now }: { readonly machines: number; readonly now: number }): Finding[] {
  if (machines === 0) return [];
  const findings = [
    ...judgeSites(health),
    ...judgeCredentials(health),
    ...judgeQuarantine(health, now),
    ...judgeShared(health),
    ...judgeRuns(health, now),
  ];
  return findings.length > 0
    ? findings
    : [ok('metal', `${machines} machine(s), ${health.openRuns.length} open run(s), every site has an agent`)];
}

const judgeSites = ({ silentSites }: MachineHealth): Finding[] =>
  silentSites.map(({ siteId, machines, agents, openRuns }) => {
    const who = agents === 0 ? 'has no agent' : `has ${agents} agent(s), none of which is connected`;
    const fix =
      agents === 0
        ? `better-compute tokens create --site ${siteId} --role site, then on a host there: bcd join, bcd site`
        : `start bcd site on a host of ${siteId} and read its log: better-compute site show ${siteId}`;
    const message = `site ${siteId} ${who}: its ${machines} machine(s) can be reached by nobody`;
    // A run that stands still is worse than one that cannot begin.
    return openRuns > 0
      ? error('metal.site-silent', `${message}, and ${openRuns} run(s) stand still`, fix)
      : warning('metal.site-silent', message, fix);
  });

const judgeCredentials = ({ halfRotated }: MachineHealth): Finding[] =>
  halfRotated.length === 0
    ? []
    : [
        warning(
          'metal.credentials-half-rotated',
          `the controller's password of ${list(halfRotated)} is half changed: both the old and the next one are stored, and no run goes on with it`,
          `better-compute machine rotate-bmc ${halfRotated[0]} --reason <why> tries both, two logins at most`,
        ),
      ];

function judgeQuarantine({ quarantined }: MachineHealth, now: number): Finding[] {
  const [first] = quarantined;
  if (first === undefined) return [];
  const why = first.reason === '' ? '' : ` (${first.id}: ${first.reason})`;
  return [
    warning(
      'metal.quarantined',
      `${quarantined.length} machine(s) in quarantine, the oldest for ${about(now - first.since)}: ${list(quarantined.map(({ id }) => id))}${why}`,
      'docs/runbooks/machine-dirty.md',
    ),
  ];
}

function judgeShared({ shared }: MachineHealth): Finding[] {
  const [first] = shared;
  if (first === undefined) return [];
  const values = shared.map(({ value, machineIds }) => `${plain(value).replace(':', ' ')} of ${list(machineIds)}`);
  return [
    warning(
      'metal.identity-shared',
      `${shared.length} value(s) are said by more than one machine and tell nobody apart: ${list(values)}`,
      `better-compute machine show ${first.machineIds[0]}; a board's number is set right at its controller, then better-compute machine inspect; a machine that was added twice: better-compute machine list`,
    ),
  ];
}

/** How long its step may take: unknown for one that is none of the kind's. */
function deadlineOf({ kind, step, stepSince, profile }: OpenRunFact): number | null {
  const found = runSteps(kind, profile).find(({ name }) => name === step);
  return found === undefined || stepSince === null ? null : stepSince + found.deadlineMs(profile);
}

function judgeRuns({ openRuns }: MachineHealth, now: number): Finding[] {
  const late = openRuns.filter((run) => now > (deadlineOf(run) ?? Number.POSITIVE_INFINITY));
  const findings = late
    .slice(0, named)
    .map((run) =>
      error(
        'metal.run-overdue',
        `the ${run.kind} run of ${run.machineId} is at step ${run.step} for ${about(now - (run.stepSince ?? now))}, longer than it may take: its workflow does not go on`,
        `better-compute stuck; if its workflow is gone: better-compute machine give-up ${run.machineId} --reason <why>`,
      ),
    );
  if (late.length > named)
    findings.push(info('metal.run-overdue', `and ${late.length - named} more run(s) past their deadline`, 'better-compute stuck'));
  return findings;
}
