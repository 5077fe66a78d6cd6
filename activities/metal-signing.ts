/**
 * How a run sends one command and hears of its end, in one activity whose id is the command's id.
 *
 * Every attempt begins by reading: an end that is there is the answer, a command that is there is waited for, and only where there is
 * none is one made, behind the probe of what it needs. So a worker that is killed before the send, after it, or before the completion
 * costs an attempt and never a second command (M38). Whoever completes the activity only wakes the workflow; what was proven is read
 * from the database by the observation that follows.
 *
 * A command of an agent that went silent is taken back where it was not begun, and the caller makes another attempt, which goes to another
 * agent; what that one finds done already it does not do again (MT2).
 */
import { activityInfo, CompleteAsyncError } from '@temporalio/activity';
import { commandKinds } from '../domain/commands/kinds.ts';
import { isFinished } from '../domain/commands/states.ts';
import { errorTable, isControlError } from '../domain/errors.ts';
import { type ActName, type ActSpec, actCommandId, actOf, runPrefix, silentForMs } from '../domain/metal/acts.ts';
import { minute } from '../domain/time.ts';
import type { EarlierAttempt } from '../services/command-body.ts';
import { earlierAttempt } from './earlier-attempt.ts';
import { translated } from './failures.ts';
import { type Observed, type ObserveInput, observe } from './metal-control.ts';
import { isOwnAct, ownStepOf } from './metal-own-steps.ts';
import { composeAct } from './metal-payloads.ts';
import type { CommandAnswer, MetalSigningPorts, RunFacts, StepRecord } from './metal-ports.ts';
import { type ProofName, proofs } from './metal-proofs.ts';
import { currentWait, notYet } from './not-yet.ts';

export interface ActInput {
  readonly runId: string;
  readonly act: ActName;
  /** This attempt, counted over the run. */
  readonly n: number;
  /** The first attempt of the same action: what one of them reached needs no other. */
  readonly first: number;
  /** Of the planned action, or of the boot; 0 where nothing is counted. */
  readonly ordinal: number;
  /** What became of earlier steps, to be written down. */
  readonly records: readonly StepRecord[];
  /** How long what it needs may be missing. */
  readonly patienceMs: number;
}

export interface ActEnd {
  /** As the command ended; or `sent`, `unsent` (reason says why), `silent`: who has it is not there any more. */
  readonly state: string;
  readonly error: string;
  /** Kebab-case; absent for a command's own end. */
  readonly reason?: string;
}

export interface MetalSigningActivities {
  actOnMachine(input: ActInput): Promise<ActEnd>;
  proveMachine(input: Omit<ObserveInput, 'what'> & { readonly what: ProofName }): Promise<Observed>;
  changeCredential(input: {
    runId: string;
    change: CredentialChange;
    records: readonly StepRecord[];
  }): Promise<{ readonly detail: string }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export type CredentialChange = 'store-next' | 'adopt';

/** From the send to the last moment a command may start where it is not connected for a while. */
const startWithinMs = 15 * minute;
const errorKept = 600;

export function createMetalSigningActivities(ports: MetalSigningPorts): MetalSigningActivities {
  return translated<MetalSigningActivities>({
    async actOnMachine(input) {
      await ports.runs.record(input.records);
      try {
        return await act(ports, input);
      } catch (error) {
        const unsent = findRefusal(error);
        if (unsent === null) throw error;
        return unsent;
      }
    },

    proveMachine: (input) => observe(ports, proofs[input.what], input),

    async changeCredential({ runId, change, records }) {
      await ports.runs.record(records);
      if (change === 'store-next')
        return { detail: `the next password is stored as ${(await ports.keys.storeNextCredential(runId)).nextRef}` };
      await ports.keys.adoptCredential(runId);
      return { detail: 'the next password is the current one' };
    },
  });
}

/** What no repetition cures is told to the workflow, which decides; a wait and a fault are left to the retries. */
function findRefusal(error: unknown): ActEnd | null {
  if (!isControlError(error) || error.code === 'INTERNAL' || error.code === 'STALE_BUNDLE' || errorTable[error.code].retryable) return null;
  const reason = error.details['reason'];
  return unsent(typeof reason === 'string' ? reason : 'refused', error.message);
}

const unsent = (reason: string, error: string): ActEnd => ({ state: 'unsent', error: error.slice(0, errorKept), reason });

async function act(ports: MetalSigningPorts, input: ActInput): Promise<ActEnd> {
  const facts = await ports.runs.read(input.runId);
  const commandId = idOf(facts, input, input.n);
  const before = await ports.answers.find(commandId);
  const ended = endOf(before);
  if (ended !== null) return ended;
  const refused =
    before === undefined ? await send(ports, { input, facts, commandId }) : await judgeSilence(ports, { before, commandId, input });
  if (refused !== null) return refused;
  if (actOf(input.act).provenElsewhere === true) return { state: 'sent', error: '' };
  return hear(ports, commandId);
}

const idOf = ({ run }: RunFacts, { runId, act: name }: ActInput, n: number): string =>
  actCommandId(runPrefix(run.workflowId, runId), name, n);

const endOf = (answer: CommandAnswer | undefined): ActEnd | null =>
  answer !== undefined && isFinished(answer.state) ? { state: answer.state, error: answer.error.slice(0, errorKept) } : null;

async function hear({ commands, answers }: MetalSigningPorts, commandId: string): Promise<ActEnd> {
  const { workflowExecution, activityId } = activityInfo();
  const { workflowId, runId } = workflowExecution ?? { workflowId: '', runId: '' };
  // Who registers before the end is told of it, who comes behind it reads it: there is nothing between the two.
  const wait = await commands.registerWait({ commandId, workflowId, runId, activityId });
  const ended = wait === 'finished' ? endOf(await answers.find(commandId)) : null;
  if (ended !== null) return ended;
  throw new CompleteAsyncError();
}

interface Sending {
  readonly input: ActInput;
  readonly facts: RunFacts;
  readonly commandId: string;
}

/** null: it is sent. */
async function send(ports: MetalSigningPorts, sending: Sending): Promise<ActEnd | null> {
  const { input, facts, commandId } = sending;
  const earlier = await takeBackEarlier(ports, sending);
  if (earlier !== null) return earlier;
  const missing = probe(sending);
  if (missing !== null) return missing;
  const nodeId = actOf(input.act).on === 'site' ? await chooseAgent(ports, sending) : facts.machine.id;
  if (nodeId === null)
    return unsent('no-site-agent', `no agent of site ${facts.machine.siteId} was connected for ${shownMinutes(input.patienceMs)}`);
  const payload = await composeAct(ports, { facts, act: input.act, ordinal: input.ordinal });
  await ports.queue.enqueue([
    {
      id: commandId,
      nodeId,
      kind: actOf(input.act).kind,
      payload,
      deadline: ports.now() + startWithinMs,
      requestedBy: facts.run.actor,
      ...batchOf(facts, input),
      ...(await asksAgain(ports, sending)),
    },
  ]);
  return null;
}

/** A batch holds what destroys, and takes nothing else in. */
function batchOf(facts: RunFacts, { act, ordinal }: ActInput): { batchId?: string } {
  const { batchId } = facts.run;
  const destroys = isOwnAct(act) ? !ownStepOf(facts, { act, ordinal }).harmless : commandKinds[actOf(act).kind].destructive;
  return batchId === null || !destroys ? {} : { batchId };
}

/** The number of an attempt says nothing to who gets it: what the machine was like before the first one does (MT2). */
async function asksAgain({ answers }: MetalSigningPorts, { input, facts }: Sending): Promise<{ earlier?: EarlierAttempt }> {
  if (input.n === input.first || actOf(input.act).looksBefore !== true) return {};
  const idOfAttempt = (name: ActName, n: number): string => idOf(facts, { ...input, act: name }, n);
  return { earlier: await earlierAttempt({ answers, idOf: idOfAttempt, first: input.first }) };
}

const shownMinutes = (ms: number): string => `${Math.round(ms / minute)} min`;

/** An attempt that was given up may have come to its end meanwhile; one that was not begun never will. */
async function takeBackEarlier({ answers, commands }: MetalSigningPorts, { input, facts }: Sending): Promise<ActEnd | null> {
  for (let n = input.first; n < input.n; n += 1) {
    const id = idOf(facts, input, n);
    const state = (await answers.find(id))?.state;
    if (state === 'open') await commands.cancel(id);
    if (state === 'done' || (await answers.find(id))?.state === 'done') return { state: 'done', error: '' };
  }
  return null;
}

/** What a command needs before it is worth sending; null: it is there. */
function probe({ input, facts }: Sending): ActEnd | null {
  const { run, machine } = facts;
  if (!facts.isOpen) return unsent('run-ended', `run ${run.id} has ended: ${run.state}`);
  const isWayBack = input.act === 'power-off' || input.act === 'clean-up';
  if (machine.state === 'quarantined' && run.kind !== 'rotate-bmc' && run.kind !== 'inspect' && !isWayBack)
    return unsent('quarantined', `machine ${machine.id} is in quarantine: ${machine.stateReason}`);
  return isThere[actOf(input.act).on](facts);
}

/** The machine itself, where it is the one that is asked; of the site's agents one is chosen. */
const isThere: Readonly<Record<ActSpec['on'], (facts: RunFacts) => ActEnd | null>> = Object.freeze({
  site: () => null,
  node: ({ node, machine }) =>
    node.certificateRole === 'node' && node.connectedRole === 'node'
      ? null
      : unsent('no-system', `the system of ${machine.id} is not connected`),
  ramdisk: ({ bootEntry, node, run, machine }) =>
    bootEntry === null || bootEntry.usedAt === null || bootEntry.closed || node.certificateRole !== 'ramdisk'
      ? unsent('no-ramdisk', `no ramdisk of run ${run.id} has joined as ${machine.id}`)
      : null,
});

/** Connected ones that have not had it come first; the same one again where there is no other. Waits while there is none at all. */
async function chooseAgent({ sites, answers }: MetalSigningPorts, { input, facts }: Sending): Promise<string | null> {
  const tried = new Set<string>();
  for (let n = input.first; n < input.n; n += 1) {
    const answer = await answers.find(idOf(facts, input, n));
    if (answer !== undefined) tried.add(answer.nodeId);
  }
  const connected = (await sites.agents(facts.machine)).filter((agent) => agent.connected);
  const chosen = connected.find(({ nodeId }) => !tried.has(nodeId)) ?? connected[0];
  if (chosen !== undefined) return chosen.nodeId;
  const wait = currentWait();
  if (wait.elapsedMs >= input.patienceMs) return null;
  return notYet({ reason: 'no-site-agent', message: `no agent of site ${facts.machine.siteId} is connected` }, wait);
}

const silentReasons = Object.freeze({ site: 'agent-silent', ramdisk: 'ramdisk-silent', node: 'system-silent' });

interface Silence {
  readonly before: CommandAnswer;
  readonly commandId: string;
  readonly input: ActInput;
}

/** M7: who is asked for is who has the command; a ramdisk that is off is no reason to give up on a site agent. */
async function judgeSilence(
  { sites, commands, answers, now }: MetalSigningPorts,
  { before, commandId, input }: Silence,
): Promise<ActEnd | null> {
  const seenAt = await sites.lastSeen(before.nodeId);
  const { on } = actOf(input.act);
  const silentMs = now() - Math.max(seenAt ?? 0, before.createdAt);
  if (silentMs <= silentForMs[on]) return null;
  if (before.state === 'open') await commands.cancel(commandId);
  const ended = endOf(await answers.find(commandId));
  if (ended !== null && ended.state !== 'cancelled') return ended;
  return {
    state: 'silent',
    error: `${before.nodeId} has not been heard of for ${shownMinutes(silentMs)}${before.state === 'open' ? ', and had not begun' : ''}`,
    reason: silentReasons[on],
  };
}
