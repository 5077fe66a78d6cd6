/** A rotation in words: the same lines for status, watch and everything that changes one. */
import { about } from '../domain/rotation/gates.ts';
import type { ApproverSetResult, ApproverSetStatus } from '../workflows/rotate-approver-set/messages.ts';
import type { RotationStatus } from '../workflows/rotate-command-root/messages.ts';
import type { KeyRotationResult, KeyRotationStatus } from '../workflows/rotate-key/messages.ts';
import { agoText, facts, instantText, shortId } from './format.ts';
import type { AnyRotationRun, AnyStatus } from './rotation-port.ts';
import { targetName } from './rotation-target.ts';

/** Everything there is to say, for `rotation status`. */
export function describeRun(run: AnyRotationRun, now: number): string {
  const rows: [string, string][] = [
    ['workflow', `${run.workflowId} (run ${run.runId})`],
    ['state', run.failure === null ? run.state : `${run.state}: ${run.failure}`],
    ['started', `${instantText(run.startedAt)} (${agoText(run.startedAt, now)})`],
  ];
  if (run.closedAt !== null) rows.push(['ended', `${instantText(run.closedAt)} (after ${about(run.closedAt - run.startedAt)})`]);
  if (run.status === null) rows.push(['phase', 'unknown: no worker answers']);
  else rows.push(...describeStatus(run.status, { now, waiting: waitingFor(run) }));
  return facts(rows);
}

/** The step's own word is newer than what the workflow was told. */
const waitingFor = ({ waiting, status }: AnyRotationRun): string | null => waiting ?? status?.behind?.message ?? null;

function describeStatus(status: AnyStatus, { now, waiting }: { now: number; waiting: string | null }): [string, string][] {
  const rows: [string, string][] = [
    ['phase', `${status.phase} (${agoText(status.since, now)})`],
    ...(isKeyStatus(status) ? keyRows(status, now) : isSetStatus(status) ? setRows(status) : rootRows(status, now)),
  ];
  if (status.paused !== null) rows.push(['paused', `by ${status.paused.actor}: ${status.paused.reason}`]);
  if (status.blocked !== null)
    rows.push(['held', `waits for the ${status.blocked.waitsFor}: ${status.blocked.code}: ${status.blocked.message}`]);
  if (waiting !== null) rows.push(['waiting for', waiting]);
  for (const { kind, subject, actor, reason } of status.overrides)
    rows.push(['override', `${[kind, subject].join(' ').trim()} by ${actor}: ${reason}`]);
  return rows;
}

/** The exchange of a key names which; a rotation of the command root has roots. */
const isKeyStatus = (status: AnyStatus): status is KeyRotationStatus => 'key' in status;

/** A change of the approvers names sets, and has no root. */
const isSetStatus = (status: AnyStatus): status is ApproverSetStatus => !('key' in status) && !('oldRoot' in status);

const setText = (set: ApproverSetStatus['to']): string =>
  set === null ? '?' : set.approvers === 0 ? `none (epoch ${set.epoch})` : `${set.threshold} of ${set.approvers} (epoch ${set.epoch})`;

function setRows({ from, to, trustVersion }: ApproverSetStatus): [string, string][] {
  return [
    ['approvers', `${setText(from)} → ${setText(to)}`],
    ...(trustVersion === null ? [] : [['trust version', String(trustVersion)] as [string, string]]),
  ];
}

function rootRows(status: RotationStatus, now: number): [string, string][] {
  const rows: [string, string][] = [['roots', `${shortId(status.oldRoot)} → ${shortId(status.newRoot)}`]];
  if (status.trustVersion !== null) rows.push(['trust version', String(status.trustVersion)]);
  if (status.dropOpensAt !== null) rows.push(['drop opens', opens(status.dropOpensAt, now)]);
  return rows;
}

function keyRows(status: KeyRotationStatus, now: number): [string, string][] {
  const name = targetName({ key: status.key, ca: status.subject });
  const rows: [string, string][] = [['key', `${name}: ${shortId(status.from)} → ${shortId(status.to)}`]];
  if (status.opensAt !== null) rows.push(['opens', opens(status.opensAt, now)]);
  return rows;
}

const opens = (at: number, now: number): string => `${instantText(at)}${at > now ? ` (in ${about(at - now)})` : ''}`;

/** One line that changes only when something a person waits for changes. */
export function watchLine(run: AnyRotationRun): string {
  const { status } = run;
  if (run.state !== 'running') return endLine(run);
  if (status === null) return 'no worker answers; the rotation itself is safe and goes on when one is back';
  if (status.blocked !== null)
    return `${status.phase}: held, waits for the ${status.blocked.waitsFor} (${status.blocked.code}: ${status.blocked.message})`;
  if (status.paused !== null) return `${status.phase}: paused by ${status.paused.actor} (${status.paused.reason})`;
  const opensAt = opensAtOf(status);
  if (opensAt !== null) return `${status.phase}: until ${instantText(opensAt)}`;
  const waiting = waitingFor(run);
  return waiting === null ? status.phase : `${status.phase}: ${waiting}`;
}

function opensAtOf(status: AnyStatus): number | null {
  if (isKeyStatus(status)) return status.opensAt;
  return !isSetStatus(status) && status.phase === 'waiting-drop' ? status.dropOpensAt : null;
}

function endLine(run: AnyRotationRun): string {
  if (run.failure !== null) return `${run.state}: ${run.failure}`;
  if (run.result === null) return run.state;
  if ('key' in run.result) return keyEndLine(run.result);
  if ('epoch' in run.result) return setEndLine(run.result);
  const { outcome, oldRoot, newRoot, trustVersion } = run.result;
  const what =
    outcome === 'dropped' ? `rotated from ${shortId(oldRoot)} to ${shortId(newRoot)}` : `taken back, ${shortId(oldRoot)} signs on`;
  return `done: ${what}${trustVersion === null ? '' : `, trust version ${trustVersion}`}`;
}

const setEndLine = ({ outcome, epoch, trustVersion }: ApproverSetResult): string =>
  outcome === 'changed'
    ? `done: every machine enforces the approvers of epoch ${epoch}, trust version ${trustVersion ?? '?'}`
    : 'done: taken back, the approvers stay';

function keyEndLine({ key, subject, outcome, from, to }: KeyRotationResult): string {
  const name = targetName({ key, ca: subject });
  return outcome === 'exchanged' ? `done: ${name} from ${shortId(from)} to ${shortId(to)}` : `done: ${name} taken back`;
}
