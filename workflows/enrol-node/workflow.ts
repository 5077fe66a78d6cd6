/**
 * A machine gets its identity over SSH, for the first time or again (XC-033 to XC-044). Up to the machine's own join everything is done beside what
 * serves: whatever fails, and wherever, the generation before goes on and the node's state is what it was. PINNED.
 *
 * Threat model: the words that come here carry an id. Whom to dial, by which host key and credential, and which key becomes the node's, is read and
 * written by those who carry out the steps, in rows that an operator's order made.
 */
import { CancellationScope, isCancellation, proxyActivities, setCurrentDetails, setHandler, workflowInfo } from '@temporalio/workflow';
import type { EnrolmentControlActivities, EnrolmentSeen, OpenedEnrolment } from '../../activities/enrolments-control.ts';
import type { HostActivities } from '../../activities/hosts.ts';
import type { EnrolmentKind } from '../../domain/enrolment/order.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { onControl, onHosts } from '../shared/activity-options.ts';
import { showPhase } from '../shared/attributes.ts';
import { findRefusal, refusing, toFailure } from '../shared/failures.ts';
import { plain } from '../shared/shape.ts';
import { versioned } from '../shared/versioning.ts';
import {
  type EnrolNodeInput,
  type EnrolNodePhase,
  type EnrolNodeResult,
  type EnrolNodeStatus,
  enrolmentTypes,
  parseEnrolNode,
  status,
} from './messages.ts';

const { openEnrolment, awaitEnrolment, endEnrolment } = proxyActivities<EnrolmentControlActivities>(onControl);
/** A machine that is off, or a queue without a worker, is waited for this long. */
const hosts = proxyActivities<HostActivities>({ ...onHosts, scheduleToCloseTimeout: '20 minutes' });
/** From here the machine may complete by itself: no longer than it may. */
const starting = proxyActivities<HostActivities>({ ...onHosts, scheduleToCloseTimeout: '15 minutes' });
const { tidyHost } = proxyActivities<HostActivities>({ ...onHosts, scheduleToCloseTimeout: '5 minutes' });

export const enrolNode = (input: EnrolNodeInput): Promise<EnrolNodeResult> => story('enrol', input);
export const reenrolNode = (input: EnrolNodeInput): Promise<EnrolNodeResult> => story('reenrol', input);
versioned('PINNED', enrolNode);
versioned('PINNED', reenrolNode);

async function story(kind: EnrolmentKind, input: EnrolNodeInput): Promise<EnrolNodeResult> {
  const told = newTelling(refusing(() => readInput(kind, input)));
  try {
    return await enrolled(kind, told);
  } catch (error) {
    const completed = await CancellationScope.nonCancellable(() => wayOut(error, told));
    if (completed === undefined) throw error;
    return completed;
  }
}

async function enrolled(kind: EnrolmentKind, told: Telling): Promise<EnrolNodeResult> {
  const { enrolmentId, nodeId } = told.order;
  const id = { enrolmentId };
  told.enter('opening', 'the order is read');
  const opened = await openEnrolment({ ...id, nodeId, kind });
  const { at } = opened;

  told.enter('reaching', `${at} is looked at; nothing is changed there`, { waitingOn: [at] });
  await hosts.reachHost.executeWithOptions({ summary: `reach ${at}` }, [id]);

  told.enter('installing', installing(kind, at), { waitingOn: [at] });
  await hosts.installDaemon.executeWithOptions({ summary: `install on ${at}` }, [id]);

  told.enter('preparing', `${at} makes its key, beside ${serving(opened)}`, { waitingOn: [at] });
  await hosts.prepareIdentity.executeWithOptions({ summary: 'the machine makes its key' }, [id]);

  told.enter('checking', `${at} is to hear this control plane by itself; then its key is minted`, { waitingOn: [at] });
  const { deadlineMs } = await hosts.mintIdentity.executeWithOptions({ summary: 'the machine verifies us, its key is minted' }, [id]);

  told.enter('starting', 'bcd is stopped and started: it completes at its start', { waitingOn: [at], deadlineMs });
  await starting.startDaemon.executeWithOptions({ summary: `restart bcd on ${at}` }, [id]);

  told.enter('completing', 'the machine is to come with its new key', { waitingOn: [nodeId], deadlineMs });
  return finished(await awaitEnrolment.executeWithOptions({ summary: `node ${nodeId} completes` }, [id]), told);
}

const installing = (kind: EnrolmentKind, at: string): string =>
  kind === 'enrol' ? `bcd, its pins and its unit are brought to ${at}` : `the pins for the next identity are brought to ${at}`;

const serving = ({ baseGeneration }: OpenedEnrolment): string =>
  baseGeneration === null ? 'nothing: it has no identity yet' : `generation ${baseGeneration}, which serves on`;

function finished(seen: EnrolmentSeen, told: Telling): EnrolNodeResult {
  if (seen.state !== 'completed') throw toFailure(notCompleted(seen.state, told));
  const { generation, connected } = seen;
  const end = connected ? 'and is connected' : 'and was not seen connected: look at bcd on the machine (journalctl -u bcd)';
  told.enter('done', `node ${told.order.nodeId} has generation ${generation}, ${end}`);
  return { ...told.order, generation, connected };
}

const notCompleted = (state: 'late' | 'failed' | 'cancelled', { order: { nodeId, enrolmentId } }: Telling): ControlError =>
  state === 'late'
    ? new ControlError('UNAVAILABLE', `node ${nodeId} did not come with its new key in time; what it was before, it is still`, {
        details: { reason: 'enrolment-late', hint: 'on the machine: journalctl -u bcd' },
      })
    : new ControlError('CANCELLED', `enrolment ${enrolmentId} was ended by somebody else: ${state}`, {
        details: { reason: 'enrolment-over' },
      });

/**
 * The order is over, unless the machine was quicker. Then what lies prepared on the machine is taken away, as well as that can be done: without the
 * order it is of no use to anybody.
 */
async function wayOut(error: unknown, told: Telling): Promise<EnrolNodeResult | undefined> {
  const { enrolmentId } = told.order;
  const id = { enrolmentId };
  const why = findRefusal(error);
  const cancelled = isCancellation(error);
  // An order that is not this workflow's is not its to end.
  if (why?.reason === 'other-enrolment' || why?.reason === 'unknown-enrolment') return undefined;
  const reason = cancelled ? 'cancelled' : (why?.message ?? 'a step failed').slice(0, 500);
  told.enter('tidying', `${cancelled ? 'cancelled' : `failed: ${reason}`}; what serves goes on`);
  const { state } = await endEnrolment({ ...id, as: cancelled ? 'cancel' : 'fail', reason });
  if (state === 'completed') return finished(await awaitEnrolment(id), told);
  told.enter('done', `${state}: ${reason}; ${await tidied(id)}`);
  return undefined;
}

async function tidied(id: { readonly enrolmentId: string }): Promise<string> {
  try {
    const { detail } = await tidyHost.executeWithOptions({ summary: 'take away what was prepared' }, [id]);
    return detail;
  } catch {
    return 'the machine could not be tidied: bcd enrol abandon does it there';
  }
}

interface Telling {
  readonly order: EnrolNodeInput;
  readonly enter: (
    phase: EnrolNodePhase,
    detail: string,
    more?: { readonly waitingOn?: readonly string[]; readonly deadlineMs?: number },
  ) => void;
}

function newTelling(order: EnrolNodeInput): Telling {
  let current: EnrolNodeStatus = { ...order, phase: 'opening', detail: '', deadlineMs: null };
  setHandler(status, () => current, { description: 'Phase, what is going on, until when the machine may complete' });
  return {
    order,
    enter(phase, detail, { waitingOn = [], deadlineMs = null as number | null } = {}) {
      current = { ...current, phase, detail, deadlineMs };
      showPhase({ phase, waitingOn, deadlineMs });
      setCurrentDetails(`**${phase}** node ${order.nodeId}: ${plain(detail, 600)}`);
    },
  };
}

function readInput(kind: EnrolmentKind, input: unknown): EnrolNodeInput {
  const { type } = enrolmentTypes[kind];
  const message = parseEnrolNode(input, type);
  const expected = workflowIds.enrolment(message.nodeId);
  const { workflowId } = workflowInfo();
  if (workflowId !== expected)
    throw new ControlError('INVALID_INPUT', `node ${message.nodeId} is enrolled under the workflow id ${expected}, not ${workflowId}`);
  return message;
}
