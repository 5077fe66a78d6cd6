/**
 * The command activities that sign: into the queue, and again before a signer's certificate ends (H-05). What the schedule brings up
 * to date includes desired state about logins: a machine that joined, a ticket key that was exchanged.
 */
import { activityInfo, heartbeat } from '@temporalio/activity';
import { type CommandKind, commandKinds } from '../domain/commands/kinds.ts';
import { hour } from '../domain/time.ts';
import { encodePayload } from './command-payload.ts';
import type { CommandSigningPorts } from './command-ports.ts';
import { translated } from './failures.ts';
import type { SignedAgain } from './rotation-ports.ts';

export interface EnqueueInput {
  readonly commandPrefix: string;
  readonly kind: CommandKind;
  readonly nodes: readonly string[] | 'all';
  readonly payload: Readonly<Record<string, unknown>>;
  readonly deadline: number;
  readonly requestedBy: string;
  readonly batchId?: string;
}

export interface CommandSigningActivities {
  enqueueCommands(input: EnqueueInput): Promise<{ total: number; existing: number }>;
  signExpiringAgain(): Promise<SignedAgain>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

/** Commands signed and appended in one statement. */
const rangeSize = 500;
/** A signature is replaced while it is good for at least this long: several runs of the schedule. */
const expiringWithinMs = hour;

interface Progress {
  /** The last node that has its command; the next attempt goes on behind it. */
  readonly after: string;
  readonly total: number;
  readonly existing: number;
}

const begin: Progress = Object.freeze({ after: '', total: 0, existing: 0 });

export function createCommandSigningActivities(ports: CommandSigningPorts): CommandSigningActivities {
  return translated<CommandSigningActivities>({
    async enqueueCommands(input) {
      const payload = encodePayload(input.kind, input.payload);
      let progress = readProgress(activityInfo().heartbeatDetails);
      for (;;) {
        const range = await nextRange(ports, input, progress.after);
        const last = range.at(-1);
        if (last === undefined) return { total: progress.total, existing: progress.existing };
        const items = range.map((nodeId) => ({
          id: `${input.commandPrefix}/${nodeId}`,
          nodeId,
          kind: input.kind,
          payload,
          deadline: input.deadline,
          requestedBy: input.requestedBy,
          ...(input.batchId === undefined ? {} : { batchId: input.batchId }),
        }));
        const { existing } = await ports.queue.enqueue(items);
        progress = { after: last, total: progress.total + range.length, existing: progress.existing + existing };
        heartbeat(progress);
      }
    },

    async signExpiringAgain() {
      const expiringBefore = (await ports.clock()) + expiringWithinMs;
      const again = await ports.resign.signAgain({ expiringBefore, underUnpublished: true, onProgress: (done) => heartbeat(done) });
      // Behind what must not wait: a node whose logins cannot be written holds up nobody's signature.
      await ports.access.bringUpToDate((done) => heartbeat(done));
      return again;
    },
  });
}

/** Listed nodes come sorted from the workflow's parser; "all" are the active nodes that understand the kind. */
async function nextRange(ports: CommandSigningPorts, input: EnqueueInput, after: string): Promise<readonly string[]> {
  const { batchId } = input;
  if (input.nodes === 'all' && batchId !== undefined) return ports.batchNodes.page({ batchId, after, limit: rangeSize });
  if (input.nodes === 'all') return ports.nodes.page({ roles: commandKinds[input.kind].roles, after, limit: rangeSize });
  const from = after === '' ? 0 : input.nodes.indexOf(after) + 1;
  return input.nodes.slice(from, from + rangeSize);
}

function readProgress(details: unknown): Progress {
  const value = details as Partial<Progress> | null | undefined;
  const whole = typeof value === 'object' && value !== null && typeof value.after === 'string' && typeof value.total === 'number';
  return whole ? { after: value.after, total: value.total, existing: value.existing ?? 0 } : begin;
}
