/**
 * The fleet by state, and one page a machine: its phases in time, what it waits for, what its disks and its controller said. Drawn here, as
 * boxes whose widths are shares of the time: no script, nothing that moves by itself. It shows, and changes nothing.
 */
import { countsBytes, ratePerSecond, remainingMs } from '../../domain/commands/progress.ts';
import { about } from '../../domain/rotation/gates.ts';
import { showInstant } from '../../domain/time.ts';
import { type Html, html } from './html.ts';
import type { FleetCount, MachineOnPage, MachineRow, RunOnPage } from './ports.ts';

const dash = (text: string): string => (text === '' ? '–' : text);
const stateMark = (state: string): Html => html`<span class="state ${state}">${state}</span>`;
const link = (id: string): Html => html`<a href="/console/machines/${encodeURIComponent(id)}"><code>${id}</code></a>`;

/** In the order of a machine's life. */
const shownStates = ['registered', 'inspecting', 'available', 'provisioning', 'provisioned', 'retiring', 'retired', 'quarantined'];

export function renderMachines(
  machines: readonly MachineRow[],
  counts: readonly FleetCount[],
  { now, state }: { now: number; state: string | null },
): Html {
  return html`<h1>Machines</h1>
${counts.length === 0 ? html`<p class="muted">No machine yet. One is added with <code>better-compute machine add</code>, many with <code>better-compute machine import</code>.</p>` : renderCounts(counts)}
${machines.length === 0 ? (state === null ? null : html`<p class="muted">No machine is ${state}.</p>`) : renderList(machines, now)}`;
}

function renderCounts(counts: readonly FleetCount[]): Html {
  const sites = [...new Set(counts.map(({ siteId }) => siteId))];
  const at = (siteId: string, state: string): number => counts.find((row) => row.siteId === siteId && row.state === state)?.machines ?? 0;
  const total = (state: string): number => counts.filter((row) => row.state === state).reduce((sum, { machines }) => sum + machines, 0);
  const all = counts.reduce((sum, { machines }) => sum + machines, 0);
  const present = shownStates.filter((state) => total(state) > 0);
  return html`<div class="bar" role="img" aria-label="machines by state">${present.map(
    (state) => html`<span class="part ${state} ${shareClass(total(state) / all)}" title="${total(state)} ${state}"></span>`,
  )}</div>
<table><tr><th>site</th>${present.map((state) => html`<th class="n"><a href="/console/machines?state=${state}">${state}</a></th>`)}</tr>
${sites.map(
  (siteId) => html`<tr><td class="k">${siteId}</td>${present.map((state) => html`<td class="n">${at(siteId, state)}</td>`)}</tr>
`,
)}${sites.length > 1 ? html`<tr><td class="muted">all</td>${present.map((state) => html`<td class="n">${total(state)}</td>`)}</tr>` : null}</table>`;
}

const renderList = (machines: readonly MachineRow[], now: number): Html => html`<table>
<tr><th>state</th><th>machine</th><th>site</th><th>rack</th><th>power</th><th>on it</th><th>run</th><th>since</th></tr>
${machines.map(
  (machine) =>
    html`<tr><td>${stateMark(machine.state)}</td><td class="k">${link(machine.id)}</td><td class="k">${machine.siteId}</td><td class="k">${dash(machine.rack)}</td><td>${machine.power}</td><td>${dash(machine.profileName)}</td><td>${machine.run === null ? '–' : `${machine.run.kind}: ${dash(machine.run.step)}`}</td><td class="k">${about(now - machine.stateSince)}</td></tr>
`,
)}</table>`;

export function renderMachine(machine: MachineOnPage, run: RunOnPage | null, now: number): Html {
  return html`<h1>${stateMark(machine.state)} Machine ${machine.id}</h1>
<p class="muted">site ${machine.siteId}${machine.rack === '' ? '' : `, rack ${machine.rack}`}, tenant ${machine.tenantId}; ${machine.state} for ${about(now - machine.stateSince)}</p>
${machine.stateReason === '' ? null : html`<p class="${machine.state === 'quarantined' ? 'warning' : 'reason'}">${machine.stateReason}</p>`}
${renderWaiting(machine, now)}
${run === null ? html`<p class="muted">Nothing has run on it.</p>` : renderRun(run, now)}
<h2>What it is</h2>
<dl>
<dt>hardware</dt><dd>${machine.inspectedAt === null ? 'never inspected' : `${dash([machine.manufacturer, machine.model].join(' ').trim())}, ${machine.processors} processor(s)`}</dd>
<dt>controller</dt><dd>${dash(machine.bmc)}</dd>
<dt>power</dt><dd>${machine.power}${machine.powerAt === null ? '' : `, seen ${about(now - machine.powerAt)} ago`}</dd>
<dt>on it</dt><dd>${dash(machine.profileName)}</dd>
<dt>seen</dt><dd>${machine.connected ? 'connected' : machine.lastSeenAt === null ? 'never' : `${about(now - machine.lastSeenAt)} ago`}</dd>
</dl>
${machine.disks.length === 0 ? null : renderDisks(machine.disks)}
${machine.runs.length < 2 ? null : renderRuns(machine)}`;
}

function renderWaiting({ live, working }: MachineOnPage, now: number): Html | null {
  if (live === null && working.length === 0) return null;
  return html`<h2>Now</h2>
${working.map((one) => renderProgress(one, now))}
${
  live === null
    ? null
    : html`<dl>
<dt>step</dt><dd>${dash(live.step)}${live.attempt > 1 ? `, attempt ${live.attempt}` : ''}</dd>
<dt>waits for</dt><dd>${dash(live.waitsFor)}${live.deadline === null ? '' : `, until ${showInstant(live.deadline)}`}</dd>
${live.last === null ? null : html`<dt>last answer</dt><dd>${live.last.state}${live.last.message === '' ? '' : `: ${live.last.message}`}, ${about(now - live.last.at)} ago</dd>`}
<dt>helps</dt><dd><code>${dash(live.next)}</code></dd>
</dl>`
}`;
}

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

function renderProgress({ kind, progress }: MachineOnPage['working'][number], now: number): Html {
  const amount = countsBytes(kind) ? gigabytes : String;
  const rate = ratePerSecond(progress);
  const left = remainingMs(progress, now);
  const parts = [
    `${amount(progress.done)}${progress.total === 0 ? '' : ` of ${amount(progress.total)}`}`,
    ...(rate === null || !countsBytes(kind) ? [] : [`${Math.round(rate / 1e6)} MB/s`]),
    ...(left === null ? [] : [`${about(left)} left`]),
    ...(progress.note === '' ? [] : [progress.note]),
  ];
  return html`<p><code>${kind}</code> ${parts.join(', ')}</p>
${progress.total === 0 ? null : html`<progress max="${progress.total}" value="${Math.min(progress.done, progress.total)}"></progress>`}`;
}

/** A policy without inline styles: widths are classes, in twentieths. */
const shareClass = (share: number): string => `w${Math.max(1, Math.min(20, Math.round(share * 20)))}`;

function renderRun(run: RunOnPage, now: number): Html {
  const end = run.endedAt ?? now;
  const whole = Math.max(1, end - run.startedAt);
  return html`<h2>Run ${run.id}</h2>
<p>${run.kind}, asked for by ${run.actor} at ${showInstant(run.startedAt)}: ${run.state === 'open' ? `${about(whole)} so far` : `${run.state} after ${about(whole)}`}${run.remains === null ? '' : `, ${run.remains}`}${run.batchId === null ? null : html`; batch <a href="/console/batches/${encodeURIComponent(run.batchId)}"><code>${run.batchId}</code></a>`}</p>
<div class="reason">${run.reason}</div>
${run.endReason === '' ? null : html`<p class="warning">${run.endReason}</p>`}
<table class="timeline"><tr><th>at</th><th>step</th><th>in time</th><th class="n">took</th><th>detail</th></tr>
${run.steps.map((step) => {
  const took = Math.max(0, (step.endedAt ?? end) - step.startedAt);
  const gap = Math.max(0, Math.min(19, Math.round(((step.startedAt - run.startedAt) / whole) * 20)));
  const width = Math.max(1, Math.min(20 - gap, Math.round((took / whole) * 20)));
  return html`<tr><td class="k">${showInstant(step.startedAt).slice(11, 19)}</td><td class="k">${step.step}${step.attempt > 1 ? ` (${step.attempt})` : ''}</td><td class="lane"><span class="gap w${gap}"></span><span class="part ${step.state} w${width}" title="${step.state}"></span></td><td class="n">${about(took)}${step.endedAt === null && run.endedAt === null ? '…' : ''}</td><td>${dash(step.detail)}</td></tr>
`;
})}</table>
${run.commands.length === 0 ? null : renderCommands(run)}
${run.evidence.length === 0 ? null : renderEvidence(run)}`;
}

const renderCommands = ({ commands }: RunOnPage): Html => html`<h2>Commands</h2>
<table><tr><th>command</th><th>on</th><th>state</th><th>answer</th></tr>
${commands.map(
  ({
    kind,
    nodeId,
    state,
    answer,
  }) => html`<tr><td class="k"><code>${kind}</code></td><td class="k">${nodeId}</td><td>${state}</td><td>${dash(answer)}</td></tr>
`,
)}</table>`;

const renderEvidence = ({ evidence, machineId }: RunOnPage): Html => html`<h2>Evidence</h2>
<table><tr><th>of</th><th>at</th><th>says</th></tr>
${evidence.map(
  ({
    kind,
    finishedAt,
    complete,
  }) => html`<tr><td>${kind}</td><td class="k">${showInstant(finishedAt)}</td><td>${complete ? 'everything that was asked for' : html`<span class="problem">not everything that was asked for</span>`}</td></tr>
`,
)}</table>
${isPlain(machineId) ? html`<p class="muted">Verified anywhere, without this page: <code>better-compute machine evidence ${machineId} --out evidence.json</code></p>` : null}`;

/** What is meant to be copied into a shell holds nothing that a shell reads. */
const isPlain = (text: string): boolean => /^[A-Za-z0-9._-]{1,63}$/.test(text);

const renderDisks = (disks: MachineOnPage['disks']): Html => html`<h2>Disks</h2>
<table><tr><th>model</th><th>serial</th><th>WWN</th><th>transport</th><th class="n">size</th><th>said by</th></tr>
${disks.map(
  (
    disk,
  ) => html`<tr><td>${dash(disk.model)}</td><td class="k"><code>${dash(disk.serial)}</code></td><td class="k"><code>${dash(disk.wwn)}</code></td><td>${dash(disk.transport)}</td><td class="n">${gigabytes(disk.sizeBytes)}</td><td>${disk.origin}</td></tr>
`,
)}</table>`;

const renderRuns = ({ id, runs }: MachineOnPage): Html => html`<h2>Runs</h2>
<table><tr><th>run</th><th>kind</th><th>began</th><th>end</th><th>by</th></tr>
${runs.map(
  (
    run,
  ) => html`<tr><td class="k"><a href="/console/machines/${encodeURIComponent(id)}?run=${run.id}"><code>${run.id}</code></a></td><td>${run.kind}</td><td class="k">${showInstant(run.startedAt)}</td><td>${run.state}${run.remains === null ? '' : `, ${run.remains}`}</td><td>${run.actor}</td></tr>
`,
)}</table>`;
