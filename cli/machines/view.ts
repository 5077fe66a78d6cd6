/** A machine, its run and its timeline as people read them. What machines and controllers said goes through the filter of format.ts. */
import { about } from '../../domain/rotation/gates.ts';
import { agoText, facts, instantText, plain, table } from '../format.ts';
import { bytesText, progressText } from '../progress.ts';
import type { MachineAnswer, MachineDetailAnswer, RunAnswer, SiteAnswer } from './client.ts';

const dash = (text: string): string => (text === '' ? '-' : text);

export const machineTable = (machines: readonly MachineAnswer[], now: number): string =>
  table(
    ['MACHINE', 'SITE', 'RACK', 'STATE', 'SINCE', 'POWER', 'PROFILE', 'RUN'],
    machines.map((machine) => [
      machine.id,
      machine.siteId,
      dash(machine.rack),
      machine.state,
      agoText(machine.stateSince, now),
      machine.power,
      dash(machine.profileName),
      runCell(machine),
    ]),
  );

function runCell({ run }: MachineAnswer): string {
  if (run === null) return '-';
  return run.step === '' ? run.kind : `${run.kind}: ${run.step}${run.attempt > 1 ? ` (attempt ${run.attempt})` : ''}`;
}

type Fact = readonly [string, string];

export function machineFacts(machine: MachineDetailAnswer, now: number): string {
  const { siteId, rack, tenantId, bmc, pinSha256, run } = machine;
  const place = `site ${siteId}${rack === '' ? '' : `, rack ${rack}`}, tenant ${tenantId}`;
  return facts([
    ['machine', `${machine.id} (${place})`],
    ['state', `${machine.state} for ${about(now - machine.stateSince)}${machine.stateReason === '' ? '' : `: ${machine.stateReason}`}`],
    ['hardware', hardwareText(machine)],
    ['controller', bmc === '' ? 'none' : `${bmc}, ${pinSha256 === null ? 'its key is not known yet' : `key ${pinSha256.slice(0, 12)}`}`],
    ['power', `${machine.power}${machine.powerAt === null ? '' : `, seen ${agoText(machine.powerAt, now)}`}`],
    ['profile', machine.profileName === '' ? 'none' : machine.profileName],
    ['seen', machine.connected ? 'connected' : machine.lastSeenAt === null ? 'never' : agoText(machine.lastSeenAt, now)],
    ...machine.shared.map((one): Fact => ['shared', sharedText(one)]),
    ...machine.disks.map((disk): Fact => ['disk', diskText(disk)]),
    ...(run === null ? [] : runFacts(machine, now)),
  ]);
}

function hardwareText({ manufacturer, model, processors, memoryBytes, inspectedAt }: MachineDetailAnswer): string {
  if (inspectedAt === null) return 'never inspected';
  const name = [manufacturer, model].filter((part) => part !== '').join(' ');
  return `${name === '' ? 'unknown maker' : name}, ${processors} processor(s), ${bytesText(memoryBytes)}`;
}

/** Two boards that say one number: neither is known by it. */
function sharedText({ value, others, hidden }: MachineDetailAnswer['shared'][number]): string {
  const who = [...others, ...(hidden === 0 ? [] : [`${hidden} that you do not see`])];
  return `${value.replace(':', ' ')} is also said by ${who.join(', ')}: it tells neither apart`;
}

const diskText = ({ name, serial, wwn, model, sizeBytes, transport }: MachineDetailAnswer['disks'][number]): string =>
  [
    bytesText(sizeBytes),
    transport,
    model,
    serial === '' ? 'without serial number' : `serial ${serial}`,
    wwn === '' ? '' : `wwn ${wwn}`,
    name === '' ? '' : `as ${name}`,
  ]
    .filter((part) => part !== '')
    .join(', ');

/** What runs, what it waits for and what to type next. */
function runFacts({ run, live, working, runs }: MachineDetailAnswer, now: number): Fact[] {
  if (run === null) return [];
  const batchId = runs.find(({ id }) => id === run.id)?.batchId ?? null;
  return [
    ['run', `${run.id}, ${run.kind} since ${agoText(run.startedAt, now)}${batchId === null ? '' : `, batch ${batchId}`}`],
    ['step', `${dash(run.step)}${run.attempt > 1 ? `, attempt ${run.attempt}` : ''}, since ${agoText(run.stepSince, now)}`],
    ...working.map(({ kind, progress }): Fact => ['progress', `${kind} ${progressText(kind, progress, now)}`]),
    ...(live === null ? [] : liveFacts(live, now)),
  ];
}

const liveFacts = ({ waitsFor, deadline, last, next }: NonNullable<MachineDetailAnswer['live']>, now: number): Fact[] => [
  ...(waitsFor === '' ? [] : [['waits for', `${waitsFor}${deadline === null ? '' : `, until ${instantText(deadline)}`}`] as const]),
  ...(last === null
    ? []
    : [['last answer', `${last.state}${last.message === '' ? '' : `: ${last.message}`}, ${agoText(last.at, now)}`] as const]),
  ...(next === '' ? [] : [['helps', next] as const]),
];

const tookText = ({ startedAt, endedAt }: { readonly startedAt: number; readonly endedAt: number | null }, now: number): string =>
  endedAt === null ? `${about(now - startedAt)} so far` : about(endedAt - startedAt);

/** The phases of a run in time, then what was sent and answered, then what was signed. */
export function timelineText(run: RunAnswer, now: number): string {
  const end = run.state === 'open' ? 'open' : `${run.state}${run.remains === null ? '' : `, ${remainsText[run.remains]}`}`;
  const head = [
    `run ${run.id}: ${run.kind} of ${run.machineId}, ${end}`,
    `  asked for by ${run.actor} at ${instantText(run.startedAt)}: ${run.reason}`,
    ...(run.endReason === '' ? [] : [`  ended by ${run.endedBy}: ${run.endReason}`]),
  ];
  return [
    head.map(plain).join('\n'),
    stepTable(run, now),
    ...(run.commands.length === 0 ? [] : [commandTable(run, now)]),
    ...(run.evidence.length === 0 ? [] : [evidenceTable(run)]),
  ].join('\n\n');
}

export const remainsText: Readonly<Record<'untouched' | 'clean' | 'dirty', string>> = Object.freeze({
  untouched: 'nothing was touched',
  clean: 'its disks are clean',
  dirty: 'its disks are dirty: in quarantine',
});

const stepTable = (run: RunAnswer, now: number): string =>
  run.steps.length === 0
    ? 'no step has begun'
    : table(
        ['AT', 'STEP', 'STATE', 'TOOK', 'DETAIL'],
        run.steps.map((step) => [
          instantText(step.startedAt),
          `${step.step}${step.attempt > 1 ? ` (${step.attempt})` : ''}`,
          step.state,
          tookText(step, now),
          dash(step.detail),
        ]),
      );

const commandTable = (run: RunAnswer, now: number): string =>
  table(
    ['COMMAND', 'ON', 'STATE', 'TOOK', 'ANSWER'],
    run.commands.map(({ kind, nodeId, state, createdAt, finishedAt, answer, progress }) => [
      kind,
      nodeId,
      state,
      tookText({ startedAt: createdAt, endedAt: finishedAt }, now),
      progress !== undefined && finishedAt === null ? progressText(kind, progress, now) : dash(answer),
    ]),
  );

const evidenceTable = (run: RunAnswer): string =>
  table(
    ['EVIDENCE', 'OF', 'AT', 'SAYS'],
    run.evidence.map(({ id, kind, finishedAt, complete }) => [id, kind, instantText(finishedAt), complete ? 'complete' : 'NOT complete']),
  );

/** One line for who watches: it changes when something happens. */
export function watchLine({ state, run, live, working }: MachineDetailAnswer, now: number): string {
  if (run === null) return state;
  const step = `${run.kind} ${run.step === '' ? 'begins' : run.step}${run.attempt > 1 ? ` (attempt ${run.attempt})` : ''}`;
  const far = working.map(({ kind, progress }) => `${kind} ${progressText(kind, progress, now)}`);
  const waits = far.length > 0 || live === null || live.waitsFor === '' ? [] : [`waits for ${live.waitsFor}`];
  return [step, ...far, ...waits].join('; ');
}

export const siteTable = (sites: readonly SiteAnswer[]): string =>
  table(
    ['SITE', 'AGENTS', 'MACHINES', 'RUNS', 'STATES'],
    sites.map(({ siteId, agents, states, openRuns }) => [
      siteId,
      `${agents.filter(({ connected }) => connected).length} of ${agents.length} connected`,
      String(Object.values(states).reduce((sum, count) => sum + (count ?? 0), 0)),
      String(openRuns),
      dash(statesText(states)),
    ]),
  );

const statesText = (states: SiteAnswer['states']): string =>
  Object.entries(states)
    .map(([state, machines]) => `${machines} ${state}`)
    .join(', ');

export const siteFacts = ({ siteId, agents, states, racks, openRuns }: SiteAnswer, now: number): string =>
  facts([
    ['site', siteId],
    ...(agents.length === 0 ? [['agent', 'none: its machines can be reached by nobody'] as const] : []),
    ...agents.map(
      ({ nodeId, connected, lastSeenAt }): Fact => [
        'agent',
        `${nodeId}, ${connected ? 'connected' : lastSeenAt === null ? 'has never come' : `not connected, seen ${agoText(lastSeenAt, now)}`}`,
      ],
    ),
    ['machines', dash(statesText(states))],
    ...racks.map(({ rack, machines }): Fact => ['rack', `${dash(rack)}: ${machines} machine(s)`]),
    ['open runs', String(openRuns)],
  ]);
