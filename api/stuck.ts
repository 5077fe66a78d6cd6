/**
 * What waits, since when, on whom, and which command helps: one list over nodes, commands and workflows. Pure; the facts come
 * from the database and from Temporal, and either may be missing without hiding the other.
 */
import type { readSetLag } from '../services/approver-lag.ts';
import type { JoinRequestView } from '../services/join/approvals.ts';
import type { UntoldBoots } from '../services/metal/boot-told.ts';
import type { AbsentNode } from '../services/operator-reads.ts';
import type { FailedSection } from '../services/section-faults.ts';
import type { WaitingCommand } from '../services/stuck.ts';

/** null before the database records what nodes hold. */
export type SetLagView = NonNullable<Awaited<ReturnType<typeof readSetLag>>>;

export interface StuckItem {
  readonly kind: 'workflow' | 'command' | 'node' | 'source';
  readonly subject: string;
  /** Unix milliseconds; null when nobody recorded it. */
  readonly since: number | null;
  readonly waitsFor: string;
  readonly help: string;
}

export const stuckCommand = (command: WaitingCommand, now: number): StuckItem => ({
  kind: 'command',
  subject: command.id,
  since: now - command.ageMs,
  waitsFor: `${command.nodeId} (${sessionWords[command.session]}) to ${command.state === 'open' ? 'take' : 'finish'} ${command.kind}${command.overdue ? ', past its deadline' : ''}`,
  help: command.session === 'connected' ? `better-compute commands show ${command.id}` : `better-compute nodes show ${command.nodeId}`,
});

const sessionWords = Object.freeze({ connected: 'connected', silent: 'silent', none: 'no session' });

export const stuckNode = (node: AbsentNode): StuckItem => ({
  kind: 'node',
  subject: node.id,
  since: node.seenAt ?? node.createdAt,
  waitsFor: `${node.seenAt === null ? 'its first session' : 'its next session'}${node.openCommands === 0 ? '' : `; ${node.openCommands} command(s) wait for it`}`,
  help: `start bcd on ${node.id}; if it is gone for good: better-compute nodes revoke ${node.id}`,
});

/** A machine that is there, and does not do what its desired state says. */
export const stuckSection = ({ nodeId, section, detail, generation }: FailedSection): StuckItem => ({
  kind: 'node',
  subject: nodeId,
  since: null,
  waitsFor: `section ${section} of its desired state (generation ${generation}) to be applied: ${detail === '' ? 'it failed' : detail}`,
  help: `better-compute nodes show ${nodeId}; the daemon tries again by itself once the cause is gone`,
});

/** A machine whose join waits for a person, and which still asks. */
export const stuckJoin = ({ id, attestor, role, siteId, nodeId, firstAskedAt }: JoinRequestView): StuckItem => ({
  kind: 'node',
  subject: `join ${id}`,
  since: firstAskedAt,
  waitsFor: `an operator: ${nodeId ?? 'a new machine'} of site ${siteId} asks to join as ${role} by ${attestor}`,
  help: `better-compute joins list, then joins approve ${id} --reason <why>, or joins refuse`,
});

/** A site agent whose boot server says of machines what they are no longer. */
export const stuckBoots = ({ agentId, connected, machineIds, machines, failed, error }: UntoldBoots): StuckItem => ({
  kind: 'node',
  subject: agentId,
  since: null,
  waitsFor: `its boot server to be told what became of ${machines} machine(s) (${machineIds.join(', ')}): ${
    connected ? `${failed} attempt(s) failed${error === '' ? '' : `: ${error}`}` : 'it is not connected'
  }`,
  help: `${connected ? `read the log of bcd on ${agentId}` : `start bcd on ${agentId}; if it is gone for good: better-compute nodes revoke ${agentId}`}; until then, turn off what must not start its disk`,
});

/** Nodes that enforce another approver set than the published one; null when there are none. */
export function stuckApproverSet(lag: SetLagView | null): StuckItem | null {
  if (lag === null || lag.behind === 0 || !lag.isPublished) return null;
  const held = lag.sample.map(({ nodeId, epoch }) => `${nodeId} at ${epoch === 0 ? 'none' : epoch}`).join(', ');
  return {
    kind: 'node',
    subject: `${lag.behind} of ${lag.connected} connected node(s)`,
    since: null,
    waitsFor: `the approver set of epoch ${lag.epoch}; they enforce another (${held})`,
    help: 'better-compute doctor (pki.quorum-lag, pki.quorum-unsigned)',
  };
}

/** Of the workflow that should watch something. */
export interface LastRun {
  /** When it ended, else when what it watches was made. */
  readonly since: number;
  /** How, as Temporal calls it; null: there was none. */
  readonly ended: string | null;
  /** Why, where it failed. */
  readonly failure: string | null;
}

const aWorkflow = ({ ended, failure }: LastRun, what: string): string =>
  ended === null
    ? `a workflow: none was started for ${what}`
    : `a workflow: its last one ended as ${ended}${failure === null ? '' : ` (${failure})`}`;

/** An open batch that no workflow watches: nobody else would say why its release was refused, or that its workflow was taken away. */
export const stuckBatch = ({ id, ...last }: LastRun & { readonly id: string }): StuckItem => ({
  kind: 'workflow',
  subject: `batch/${id}`,
  since: last.since,
  waitsFor: aWorkflow(last, 'this batch'),
  help: `bc-reconcile-batches starts one within a minute; if it fails again: better-compute batch show ${id}, then better-compute batch cancel ${id} --reason <why>`,
});

/** An enrolment over SSH that nobody carries out, and that keeps its node from being enrolled again. */
export const stuckEnrolment = ({ id, workflowId, ...last }: LastRun & { readonly id: string; readonly workflowId: string }): StuckItem => ({
  kind: 'workflow',
  subject: workflowId,
  since: last.since,
  waitsFor: aWorkflow(last, `enrolment ${id}`),
  help: `better-compute enrolments cancel ${id} --reason <why>, then order it again; what the node was before, it is still`,
});

export interface WorkflowFacts {
  readonly workflowId: string;
  readonly type: string;
  /** Since when it is in its phase, or the start of the workflow where it does not say. */
  readonly since: number;
  readonly phase: string | null;
  readonly waitingOn: readonly string[];
  readonly deadline: number | null;
  readonly behind: number | null;
  /** TemporalReportedProblems: the worker cannot run this workflow's code. */
  readonly problems: readonly string[];
  /** Activities that have failed at least once and try again, with the last failure's message. */
  readonly retrying: readonly {
    readonly type: string;
    readonly attempt: number;
    readonly failure: string;
  }[];
}

/** In the place of a failure, of a step that waits in its queue for the first time. */
export const untakenStep = 'no worker takes it';

/** null: it runs and waits for nobody in particular. */
export function stuckWorkflow(facts: WorkflowFacts): StuckItem | null {
  const reason = reasonOf(facts);
  if (reason === null) return null;
  return {
    kind: 'workflow',
    subject: facts.workflowId,
    since: facts.since,
    waitsFor: `${facts.phase === null ? '' : `${facts.phase}: `}${reason}`,
    help: helpFor(facts),
  };
}

function reasonOf(facts: WorkflowFacts): string | null {
  if (facts.problems.length > 0) return `its code cannot run (${facts.problems.join(', ')})`;
  const [retry] = facts.retrying;
  if (retry !== undefined) return `${retry.failure} (${retry.type}, attempt ${retry.attempt})`;
  if (facts.waitingOn.length > 0) return facts.waitingOn.join(', ');
  return facts.deadline === null ? null : `until ${new Date(facts.deadline).toISOString()}`;
}

/** The first that fits: what is broken before who is behind. */
function helpFor(facts: WorkflowFacts): string {
  if (facts.problems.length > 0) return `read the worker's log, then: temporal workflow show --workflow-id ${facts.workflowId}`;
  const help = helpOf[facts.type];
  if (help !== undefined) return help(facts);
  const flags = keyFlags(facts);
  if (flags !== null) return keyHelp(facts, flags);
  return `temporal workflow describe --workflow-id ${facts.workflowId}`;
}

function rootHelp(facts: WorkflowFacts): string {
  if (facts.phase === 'blocked') return blockedHelp(facts);
  return (facts.behind ?? 0) > 0 || facts.phase === 'waiting-fleet'
    ? 'start the nodes that are behind, or: better-compute rotation exclude <node> --reason <why>'
    : 'better-compute rotation status';
}

/** `machine/<id>/<kind>`. The run itself says more, as long as a worker answers for it (stuck-runs.ts). */
function machineHelp({ workflowId }: WorkflowFacts): string {
  const machineId = workflowId.split('/')[1] ?? '';
  return `better-compute machine show ${machineId} --timeline; or end it: better-compute machine cancel ${machineId} --reason <why>`;
}

/** What the hosts worker does, by its phases; the others are a control worker's. */
const onTheMachine: readonly (string | null)[] = ['reaching', 'installing', 'preparing', 'checking', 'starting', 'tidying'];

/** `node/<id>/identity`. */
function enrolmentHelp({ workflowId, phase, retrying }: WorkflowFacts): string {
  const end = `better-compute enrolments list --node ${workflowId.split('/')[1] ?? ''} --open; or end it: better-compute enrolments cancel <enrolment> --reason <why>`;
  const isLeft = retrying[0]?.failure === untakenStep && onTheMachine.includes(phase);
  return isLeft ? `start a hosts worker, which takes from the queue bc-hosts; ${end}` : end;
}

/** Its id stands in the workflow's. */
function batchHelp({ workflowId, phase }: WorkflowFacts): string {
  const batchId = workflowId.slice(workflowId.indexOf('/') + 1);
  return phase === 'waiting-approvals'
    ? `approvers review and sign it: better-compute batch approve ${batchId} --key <file>; or end it: better-compute batch cancel ${batchId} --reason <why>`
    : `better-compute batch show ${batchId} says how far it is; or end it: better-compute batch cancel ${batchId} --reason <why>`;
}

function approversHelp(facts: WorkflowFacts): string {
  const { phase, waitingOn } = facts;
  const flags = '--key approvers';
  if (phase === 'blocked') {
    return waitingOn.includes('operator')
      ? `better-compute rotation status ${flags} says what was refused; repair it, then: better-compute rotation resume ${flags}`
      : 'better-compute doctor says how to repair it; the change then goes on by itself';
  }
  if (phase === 'waiting-fleet')
    return `better-compute approvers show names the machines; start them, pin again what missed several changes, or: better-compute rotation exclude <node> --reason <why> ${flags}`;
  return `better-compute rotation status ${flags}`;
}

const keyFlagsOf: Readonly<Record<string, string>> = Object.freeze({
  renewCa: '--key ca --ca',
  rotateGatewayCertificate: '--key gateway',
  rotateTicketKey: '--key ticket',
  rotateWorkloadKey: '--key workload',
});

/** What `rotation …` needs to mean this workflow; null for one that exchanges no key. A renewal's authority stands in its id. */
function keyFlags({ type, workflowId }: WorkflowFacts): string | null {
  const flags = keyFlagsOf[type];
  if (flags === undefined) return null;
  return type === 'renewCa' ? `${flags} ${workflowId.slice(workflowId.lastIndexOf('/') + 1)}` : flags;
}

function keyHelp({ phase, waitingOn, deadline }: WorkflowFacts, flags: string): string {
  if (phase === 'blocked' && !waitingOn.includes('operator'))
    return 'better-compute doctor says how to repair it; the exchange then goes on by itself';
  if (phase === 'blocked')
    return `better-compute rotation status ${flags} says what was refused; repair it, then: better-compute rotation resume ${flags}`;
  if (deadline !== null) return 'nothing needs to be done; no message shortens this wait';
  return `start the processes that are behind again, or: better-compute rotation force --phase <gate> --reason <why> ${flags}`;
}

/** Only a hold for the operator needs the word to go on; any other ends with its cause. */
const blockedHelp = ({ waitingOn }: WorkflowFacts): string =>
  waitingOn.includes('operator')
    ? 'better-compute rotation status says what was refused; repair it, then: better-compute rotation resume'
    : 'better-compute doctor says how to repair it; the rotation then goes on by itself';

/** Type of the workflow → what helps. */
const helpOf: Readonly<Record<string, (facts: WorkflowFacts) => string>> = Object.freeze({
  rotateCommandRoot: rootHelp,
  approveBatch: batchHelp,
  rotateApproverSet: approversHelp,
  provisionMachine: machineHelp,
  retireMachine: machineHelp,
  inspectMachine: machineHelp,
  rotateBmcCredentials: machineHelp,
  enrolNode: enrolmentHelp,
  reenrolNode: enrolmentHelp,
});
