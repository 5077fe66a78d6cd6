/**
 * The message handlers of a rotation. Whoever may write to the namespace may send them, so nothing here is believed: an
 * override is first written to the database and the audit trail by an activity, and the gates read it from there.
 *
 * Validators are synchronous and throw failures only; update handlers may fail (the sender is told); signals come through the inbox.
 */
import type { QueryDefinition, UpdateDefinition } from '@temporalio/common';
import { condition, defineSignal, setHandler } from '@temporalio/workflow';
import { refusing } from './failures.ts';
import { listen, onSignals } from './inbox.ts';
import { type LifecycleStatus, type Override, type PauseMessage, parsePause } from './lifecycle-messages.ts';
import { type LifecycleState, overrideKey } from './lifecycle-state.ts';
import type { Steps } from './steps.ts';

export const pause = defineSignal<[PauseMessage]>('pause');
export const resume = defineSignal<[unknown?]>('resume');

/** What the sender really sent is unknown until it is parsed. */
type UpdateFromAnyone<Status> = UpdateDefinition<Status, [unknown]>;

export interface OverrideHandler {
  /** Definitions of one message each: the update answers, its signal twin is for hours in which no worker runs. */
  readonly update: { readonly name: string };
  readonly signal: { readonly name: string };
  /** @throws ControlError for what is refused */
  readonly read: (value: unknown) => Override;
  readonly description: string;
}

export interface LifecycleHandlers<Status extends LifecycleStatus> {
  readonly query: QueryDefinition<Status>;
  readonly status: () => Status;
  readonly overrides: readonly OverrideHandler[];
  /** The activity that writes an override down before it counts. */
  readonly record: (override: Override) => Promise<Override>;
}

export function installHandlers<Phase extends string, Gate extends string, Status extends LifecycleStatus>(
  steps: Steps<Phase, Gate, LifecycleState<Phase, Gate>>,
  handlers: LifecycleHandlers<Status>,
): void {
  const { state } = steps;
  setHandler(handlers.query, () => handlers.status(), { description: 'Phase, who is behind, overrides, the next instant that opens' });
  const record = async (override: Override): Promise<Status> => {
    await recordAndTake(steps, { override, record: handlers.record });
    return handlers.status();
  };
  for (const { update, signal, read, description } of handlers.overrides) {
    setHandler(update as UpdateFromAnyone<Status>, async (value) => record(read(value)), {
      validator: (value) => {
        refusing(() => read(value));
      },
      description,
    });
    listen({ signal, description: `${description} (no answer; for hours in which no worker runs)`, read, take: record });
  }
  listen({
    signal: pause,
    description: 'Hold before the next step {actor, reason}',
    read: parsePause,
    take: (message) => state.pause(message, Date.now()),
  });
  listen({
    signal: resume,
    description: 'Go on after a pause, or after the cause of a refused step was repaired',
    read: () => undefined,
    take: () => state.resume(),
  });
  onSignals(() => steps.show());
}

async function recordAndTake<Phase extends string, Gate extends string>(
  steps: Steps<Phase, Gate, LifecycleState<Phase, Gate>>,
  { override, record }: { override: Override; record: (override: Override) => Promise<Override> },
): Promise<void> {
  const { state } = steps;
  await condition(() => state.planned);
  const key = overrideKey(override);
  if (!state.overrides.has(key)) {
    const written = await record(override);
    state.overrides.set(key, written);
  }
  if (override.kind === 'abort' && state.aborting === null && !state.beyondReturn) {
    state.startAbort(override);
    steps.interrupt();
  }
  steps.show();
}
