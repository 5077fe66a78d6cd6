/** A rotation in words: the same lines for status, watch and everything that changes one. */
import { about } from '../domain/rotation/gates.ts';
import type { RotationStatus } from '../workflows/rotate-command-root/messages.ts';
import { agoText, facts, instantText, shortId } from './format.ts';
import type { RotationRun } from './rotation-port.ts';

/** Everything there is to say, for `rotation status`. */
export function describeRun(run: RotationRun, now: number): string {
  const rows: [string, string][] = [
    ['workflow', `${run.workflowId} (run ${run.runId})`],
    ['state', run.failure === null ? run.state : `${run.state}: ${run.failure}`],
    ['started', `${instantText(run.startedAt)} (${agoText(run.startedAt, now)})`],
  ];
  if (run.closedAt !== null) rows.push(['ended', `${instantText(run.closedAt)} (after ${about(run.closedAt - run.startedAt)})`]);
  if (run.status === null) rows.push(['phase', 'unknown: no worker answers']);
  else rows.push(...describeStatus(run.status, now));
  return facts(rows);
}

function describeStatus(status: RotationStatus, now: number): [string, string][] {
  const rows: [string, string][] = [
    ['phase', `${status.phase} (${agoText(status.since, now)})`],
    ['roots', `${shortId(status.oldRoot)} → ${shortId(status.newRoot)}`],
  ];
  if (status.trustVersion !== null) rows.push(['trust version', String(status.trustVersion)]);
  if (status.dropOpensAt !== null) rows.push(['drop opens', opens(status.dropOpensAt, now)]);
  if (status.paused !== null) rows.push(['paused', `by ${status.paused.actor}: ${status.paused.reason}`]);
  if (status.blocked !== null)
    rows.push(['held', `waits for the ${status.blocked.waitsFor}: ${status.blocked.code}: ${status.blocked.message}`]);
  if (status.behind !== null) rows.push(['waiting for', status.behind.message]);
  for (const { kind, subject, actor, reason } of status.overrides)
    rows.push(['override', `${[kind, subject].join(' ').trim()} by ${actor}: ${reason}`]);
  return rows;
}

const opens = (at: number, now: number): string => `${instantText(at)}${at > now ? ` (in ${about(at - now)})` : ''}`;

/** One line that changes only when something a person waits for changes. */
export function watchLine(run: RotationRun): string {
  const { status } = run;
  if (run.state !== 'running') return endLine(run);
  if (status === null) return 'no worker answers; the rotation itself is safe and goes on when one is back';
  if (status.blocked !== null)
    return `${status.phase}: held, waits for the ${status.blocked.waitsFor} (${status.blocked.code}: ${status.blocked.message})`;
  if (status.paused !== null) return `${status.phase}: paused by ${status.paused.actor} (${status.paused.reason})`;
  if (status.phase === 'waiting-drop' && status.dropOpensAt !== null) return `${status.phase}: until ${instantText(status.dropOpensAt)}`;
  return status.behind === null ? status.phase : `${status.phase}: ${status.behind.message}`;
}

function endLine(run: RotationRun): string {
  if (run.failure !== null) return `${run.state}: ${run.failure}`;
  if (run.result === null) return run.state;
  const { outcome, oldRoot, newRoot, trustVersion } = run.result;
  const what =
    outcome === 'dropped' ? `rotated from ${shortId(oldRoot)} to ${shortId(newRoot)}` : `taken back, ${shortId(oldRoot)} signs on`;
  return `done: ${what}${trustVersion === null ? '' : `, trust version ${trustVersion}`}`;
}
