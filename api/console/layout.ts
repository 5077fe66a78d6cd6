/** The frame of every console page: no script, one style sheet of our own, read anew every few seconds where something moves. */
import { type Html, html } from './html.ts';

export interface PageOptions {
  readonly title: string;
  readonly body: Html;
  /** Who is signed in; null on the page that asks. */
  readonly who: string | null;
  /** Seconds after which the browser reads the page anew; null: never. */
  readonly refreshSeconds: number | null;
}

export const renderPage = ({ title, body, who, refreshSeconds }: PageOptions): string =>
  html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
${refreshSeconds === null ? null : html`<meta http-equiv="refresh" content="${refreshSeconds}">`}
<title>${title} · Better Compute</title>
<link rel="stylesheet" href="/console/style.css">
</head>
<body>
<header><a href="/console">Better Compute</a><nav><a href="/console">Batches</a> <a href="/console/machines">Machines</a></nav>${who === null ? null : html`<span class="who">${who}</span>`}</header>
<main>
${body}
</main>
<footer>This page reads. It signs nothing: approver keys never enter a browser.</footer>
</body>
</html>
`.html;

/** Widths in twentieths: the policy of the pages allows no style but this sheet. */
const shares = Array.from({ length: 21 }, (_, at) => `.w${at} { width: ${at * 5}%; }`).join(' ');

export const styleSheet = `
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --paper: #fff; --wash: #f6f8fa; --warn: #9a6700; --warn-wash: #fff8c5;
  --bad: #c93c37; --good: #1a7f37; --busy: #0969da; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117; --wash: #151b23; --warn: #d29922;
  --warn-wash: #272115; --bad: #f85149; --good: #3fb950; --busy: #4493f8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header { display: flex; gap: 1.5rem; align-items: baseline; padding: .8rem 1.5rem; border-bottom: 1px solid var(--line); background: var(--wash); }
header > a { font-weight: 600; } header .who { margin-left: auto; color: var(--soft); }
a { color: inherit; } main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; } footer { padding: 1.5rem; text-align: center; color: var(--soft); }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
table { width: 100%; border-collapse: collapse; } table + table { margin-top: 2rem; } nav { display: flex; gap: 1rem; } th { text-align: left; font-weight: 500; color: var(--soft); }
th, td { padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.5 ui-monospace, monospace; } pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; } dl { display: grid; grid-template-columns: 11rem 1fr; gap: .3rem 1rem; margin: 1rem 0; } dt { color: var(--soft); } dd { margin: 0; }
td.k { white-space: nowrap; } td.k code { overflow-wrap: normal; }
.reason { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid var(--line); padding: .2rem .8rem; margin: .8rem 0; }
.warning { background: var(--warn-wash); border: 1px solid var(--warn); border-radius: 6px; padding: .6rem .8rem; margin: .8rem 0; overflow-wrap: anywhere; }
.state { display: inline-block; padding: 0 .6rem; border-radius: 1rem; border: 1px solid currentColor; font-size: .85rem; }
.state.pending, .state.inspecting, .state.retiring { color: var(--warn); } .state.approved, .state.provisioned { color: var(--good); }
.state.provisioning { color: var(--busy); } .state.cancelled, .state.expired, .state.quarantined { color: var(--bad); } .muted { color: var(--soft); }
progress { width: 100%; height: .7rem; accent-color: var(--busy); } .share { white-space: nowrap; } .share progress { width: 8rem; vertical-align: middle; margin-right: .5rem; }
.bar { display: flex; gap: 2px; height: 1rem; margin: .8rem 0; } .bar .part { height: 100%; flex-grow: 0; }
.lane { width: 38%; white-space: nowrap; font-size: 0; } .lane span { display: inline-block; height: .8rem; margin-top: .35rem; vertical-align: top; }
.part { background: var(--soft); border-radius: 3px; } .part.done, .part.provisioned { background: var(--good); }
.part.started, .part.provisioning, .part.inspecting { background: var(--busy); } .part.failed, .part.quarantined { background: var(--bad); }
.part.retiring { background: var(--warn); } .part.skipped, .part.registered, .part.retired { background: var(--line); }
${shares}
form { display: flex; gap: .6rem; align-items: end; } label { display: grid; gap: .2rem; } input { font: inherit; padding: .35rem .5rem; width: 24rem; max-width: 100%; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } table { display: block; overflow-x: auto; } header { flex-wrap: wrap; } }
button { font: inherit; padding: .35rem 1rem; } .problem { color: var(--bad); }
`;
