/**
 * The runs on machines as the api uses them: started by name, then told what an operator decided. An answer needs a worker; where none
 * runs, the words are sent as a signal, which waits for one.
 */
import { type Client, WorkflowUpdateRPCTimeoutOrCancelledError } from '@temporalio/client';
import { type ControlError, isControlError } from '../domain/errors.ts';
import type { RunKind } from '../domain/metal/run-ends.ts';
import { workflowIds } from '../temporal.config.ts';
import * as inspect from '../workflows/inspect-machine/messages.ts';
import * as provision from '../workflows/provision-machine/messages.ts';
import * as fleet from '../workflows/reimage-fleet/messages.ts';
import * as retire from '../workflows/retire-machine/messages.ts';
import * as rotate from '../workflows/rotate-bmc-credentials/messages.ts';
import * as words from '../workflows/shared/machine-messages.ts';
import type { Started } from './ports.ts';
import { createStartWorkflow } from './start-workflow.ts';
import { calling } from './temporal-errors.ts';

export const runWorkflows = Object.freeze({ provision, retire, inspect, 'rotate-bmc': rotate });

export interface Order {
  readonly machineId: string;
  readonly actor: string;
  readonly reason: string;
  /** The document of a profile, for a provision run. */
  readonly profile?: Readonly<Record<string, unknown>>;
}

/** What an operator says to an open run. */
export const steering = Object.freeze({
  cancel: { update: words.cancel, signal: words.cancelSignal },
  override: { update: words.override, signal: words.overrideSignal },
  'give-up': { update: words.giveUp, signal: words.giveUpSignal },
} as const);
export type Steering = keyof typeof steering;

export interface SteerWords {
  readonly actor: string;
  readonly reason: string;
  /** Of an override: the step that was checked. */
  readonly step?: string;
}

export interface MetalWorkflows {
  /** @throws INVALID_STATE (already-running) */
  start(kind: RunKind, order: Order): Promise<Started>;
  /** @returns null when the words wait for a worker. @throws NOT_FOUND (not-running); what the run refuses */
  steer(workflowId: string, what: Steering, said: SteerWords): Promise<words.RunStatus | null>;
  /** null without a worker, or when the workflow has gone. */
  status(workflowId: string): Promise<words.RunStatus | null>;
  /** @throws INVALID_STATE (already-running) */
  startReimage(input: fleet.ReimageFleetInput): Promise<Started>;
}

interface WaitTimes {
  readonly answerWithinMs: number;
  readonly queryWithinMs: number;
}

/** A run answers at once; for longer, no worker is there. */
const usualTimes: WaitTimes = Object.freeze({ answerWithinMs: 10_000, queryWithinMs: 3_000 });

export function createMetalWorkflows(
  client: () => Promise<Client>,
  { answerWithinMs, queryWithinMs }: WaitTimes = usualTimes,
): MetalWorkflows {
  const start = createStartWorkflow(client);
  return {
    start: (kind, order) => {
      const { workflowType, staticSummary } = runWorkflows[kind];
      return start(workflowType, { workflowId: workflowIds.machineRun(order.machineId, kind), input: order, summary: staticSummary });
    },
    steer: (workflowId, what, said) =>
      calling(`workflow ${workflowId}`, async () => {
        const found = await client();
        const handle = found.workflow.getHandle(workflowId);
        const { update, signal } = steering[what];
        try {
          const ask = (): Promise<words.RunStatus> => handle.executeUpdate<words.RunStatus, [SteerWords]>(update.name, { args: [said] });
          return await found.connection.withDeadline(Date.now() + answerWithinMs, ask);
        } catch (error) {
          if (!(error instanceof WorkflowUpdateRPCTimeoutOrCancelledError)) throw error;
          await handle.signal<[SteerWords]>(signal.name, said);
          return null;
        }
      }),
    async status(workflowId) {
      const found = await client();
      const ask = (): Promise<words.RunStatus> => found.workflow.getHandle(workflowId).query(words.status);
      return found.connection.withDeadline(Date.now() + queryWithinMs, ask).catch(() => null);
    },
    startReimage: (input) =>
      start(fleet.workflowType, { workflowId: workflowIds.reimageFleet(input.run), input, summary: fleet.staticSummary }),
  };
}

/** Whether a run's workflow is gone while the run stands open: somebody terminated it, or its history was lost. */
export const isGone = (error: unknown): error is ControlError => isControlError(error) && error.details['reason'] === 'not-running';
