/**
 * What an approver reads beside the terminal: what the batch would do and where, how much of each site that is, who has signed, what
 * remains, and the exact command that signs. The approver's own tool recomputes all of it from the leaves; this page is the
 * control plane's word, and says so.
 */
import { showInstant } from '../../domain/time.ts';
import { type Html, html } from './html.ts';
import type { BatchOnPage, BatchOverview, BatchSummary } from './ports.ts';

const count = (value: number): string => String(value).replace(/\B(?=(\d{3})+$)/g, ' ');

const plural = (value: number, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;

export const stateMark = (state: string): Html => html`<span class="state ${state}">${state}</span>`;

export function renderBatch(batch: BatchOnPage, overview: BatchOverview, now: number): Html {
  return html`<h1>${stateMark(batch.state)} Batch ${batch.id}</h1>
<p class="muted">${plural(batch.size, 'operation')} for tenant ${batch.tenantId}, asked for by ${batch.createdBy} at ${showInstant(batch.createdAt)}</p>
<div class="reason">${batch.reason}</div>
${batch.proposedBy === null ? null : html`<p class="warning">${batch.proposedBy}</p>`}
${renderRisk(overview)}
${renderScope(batch, overview)}
${renderApprovals(batch, now)}
${renderProgress(batch)}
<h2>What is signed</h2>
<dl>
<dt>root</dt><dd><code>${batch.root}</code></dd>
<dt>size</dt><dd>${count(batch.size)}</dd>
<dt>not after</dt><dd>${showInstant(batch.notAfterMs)}</dd>
<dt>trust domain</dt><dd>${batch.trustDomain}</dd>
</dl>`;
}

/** From this share of a site on, a batch is called out. */
const loudShare = 0.5;

function renderRisk({ machines, sites }: BatchOverview): Html {
  const loud = sites.filter((site) => site.of > 1 && site.machines / site.of >= loudShare);
  return html`<h2>Risk</h2>
<p>${plural(machines, 'machine')} at ${plural(sites.length, 'site')}.</p>
${loud.length === 0 ? null : html`<p class="warning">Half or more of ${loud.map((site) => site.site).join(', ')} at once.</p>`}
<table>
<tr><th>site</th><th class="n">machines</th><th>of the active machines there</th></tr>
${sites.map(({ site, machines: touched, of }) => {
  const share = of === 0 ? 'none is active' : `${Math.round((touched / of) * 100)} % of ${count(of)}`;
  return html`<tr><td class="k">${site}</td><td class="n">${count(touched)}</td><td class="share"><progress max="${Math.max(of, touched)}" value="${touched}"></progress>${share}</td></tr>
`;
})}</table>`;
}

function renderScope({ size }: BatchOnPage, { scope }: BatchOverview): Html {
  const unbound = scope.reduce((sum, row) => sum + row.unbound, 0);
  return html`<h2>Scope</h2>
${unbound === 0 ? null : html`<p class="warning">${plural(unbound, 'operation')} of ${count(size)} may run with any payload: whoever sends the command chooses what it does.</p>`}
<table>
<tr><th>kind</th><th>site</th><th class="n">operations</th><th class="n">distinct payloads</th><th class="n">any payload</th></tr>
${scope.map(
  (row) =>
    html`<tr><td class="k"><code>${row.kind}</code></td><td class="k">${row.site}</td><td class="n">${count(row.leaves)}</td><td class="n">${count(row.payloads)}</td><td class="n">${count(row.unbound)}</td></tr>
`,
)}</table>`;
}

function renderApprovals({ id, state, approvals, required, root, notAfterMs }: BatchOnPage, now: number): Html {
  const remaining = Math.max(0, required - approvals.length);
  const isOpen = state === 'pending' && now <= notAfterMs;
  return html`<h2>Approvals</h2>
<p>${standingOf({ remaining, required, isOpen, end: showInstant(notAfterMs) })}</p>
${approvals.length === 0 ? null : renderSigners(approvals)}
${isOpen && remaining > 0 ? renderCommands({ id, root }) : null}`;
}

interface Standing {
  readonly remaining: number;
  readonly required: number;
  readonly isOpen: boolean;
  readonly end: string;
}

function standingOf({ remaining, required, isOpen, end }: Standing): string {
  if (required === 0) return 'No approver set was published when this batch was made: it needs no approvals.';
  if (remaining === 0) return `All ${required} approvals are there.`;
  const have = `${required - remaining} of ${required} approvals`;
  return isOpen ? `${have}; ${plural(remaining, 'more is', 'more are')} needed before ${end}.` : `${have} came before it ended.`;
}

const renderSigners = (approvals: BatchOnPage['approvals']): Html => html`<table><tr><th>approver key</th><th>at</th></tr>
${approvals.map(
  ({ kid, at }) => html`<tr><td><code>${kid}</code></td><td class="k">${showInstant(at)}</td></tr>
`,
)}</table>`;

/** What is meant to be copied into a shell holds nothing that a shell reads: ids and roots of ours look like this. */
const isPlain = (text: string): boolean => /^[A-Za-z0-9_-]{1,80}$/.test(text);

function renderCommands({ id, root }: { readonly id: string; readonly root: string }): Html {
  if (!isPlain(id) || !isPlain(root))
    return html`<p class="warning">Its id or root is none that this system makes: do not approve it, and find out who wrote it.</p>`;
  return html`<p>An approver reviews and signs with
the key at hand; the tool reads every leaf itself, refuses when the root is another, and signs once <code>--yes</code> is added:</p>
<pre>better-compute batch approve ${id} --key approver.pem --root ${root}</pre>
<p>Or away from the network, and straight to the workflow:</p>
<pre>better-compute batch sign ${id} --key approver.pem --root ${root} --out approval.json
temporal workflow update execute --workflow-id batch/${id} --name approve --input-file approval.json</pre>`;
}

function renderProgress({ progress, members, waves }: BatchOnPage): Html | null {
  if (members === 0) return html`<h2>Commands</h2><p class="muted">None is in the batch yet.</p>`;
  const released = members - progress.held;
  const states = Object.entries(progress.states).filter(([, number]) => number > 0);
  return html`<h2>Commands</h2>
<p>${count(released)} of ${plural(members, 'command')} released${waves === null ? '' : `, in waves: ${waves}`}.</p>
<progress max="${members}" value="${released}"></progress>
<table><tr><th>state</th><th class="n">commands</th></tr>
${progress.held === 0 ? null : html`<tr><td>held</td><td class="n">${count(progress.held)}</td></tr>`}${states.map(
  ([state, number]) => html`<tr><td>${state}</td><td class="n">${count(number)}</td></tr>
`,
)}</table>`;
}

export const renderBatches = (batches: readonly BatchSummary[]): Html => html`<h1>Batches</h1>
${
  batches.length === 0
    ? html`<p class="muted">No batch yet. A batch is made with <code>better-compute batch create</code>, or by what needs one.</p>`
    : html`<table><tr><th>state</th><th>batch</th><th>reason</th><th class="n">operations</th><th class="n">approvals</th><th>not after</th></tr>
${batches.map(
  (batch) =>
    html`<tr><td>${stateMark(batch.state)}</td><td class="k"><a href="/console/batches/${encodeURIComponent(batch.id)}"><code>${batch.id}</code></a></td><td>${batch.reason.slice(0, 120)}${batch.proposedBy === null ? null : html`<br><span class="muted">${batch.proposedBy}</span>`}</td><td class="n">${count(batch.size)}</td><td class="n">${batch.approvals.length} of ${batch.required}</td><td class="k">${showInstant(batch.notAfterMs)}</td></tr>
`,
)}</table>`
}`;

export const renderLogin = (problem: string | null): Html => html`<h1>Sign in</h1>
<p>With the bearer of the operator API: the operator token of this deployment, or a token of its identity provider.</p>
${problem === null ? null : html`<p class="problem">${problem}</p>`}
<form method="post" action="/console/login">
<label>Bearer token <input type="password" name="token" required autocomplete="off"></label>
<button type="submit">Sign in</button>
</form>`;
