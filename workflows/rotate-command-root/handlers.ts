/**
 * The message handlers of a rotation. Whoever may write to the namespace may send them, so nothing here is believed: an
 * override is first written to the database and the audit trail by an activity, and the gates read it from there.
 *
 * Validators are synchronous and throw failures only; update handlers may fail (the sender is told); signal handlers never
 * throw, because a failure in one would end the workflow.
 */
import type { SignalDefinition, UpdateDefinition } from '@temporalio/common';
import { condition, log, proxyActivities, setDefaultSignalHandler, setHandler } from '@temporalio/workflow';
import type { RotationControlActivities } from '../../activities/rotation-control.ts';
import { onControl } from '../shared/activity-options.ts';
import { refusing } from '../shared/failures.ts';
import * as messages from './messages.ts';
import { overrideKey, type RotationState } from './state.ts';
import type { Steps } from './steps.ts';

const { recordOverride } = proxyActivities<RotationControlActivities>(onControl);

export function installHandlers(steps: Steps): void {
  const { state } = steps;
  setHandler(messages.status, () => state.status(), { description: 'Phase, who is behind, overrides, earliest drop' });
  for (const entry of overrideHandlers(state)) {
    setHandler(entry.update as UpdateFromAnyone, async (value) => record(steps, entry.read(value)), {
      validator: (value) => {
        refusing(() => entry.read(value));
      },
      description: entry.description,
    });
    setHandler(entry.signal as SignalFromAnyone, (value) => quietly(entry.signal.name, () => record(steps, entry.read(value))), {
      description: `${entry.description} (no answer; for hours in which no worker runs)`,
    });
  }
  setHandler(
    messages.pause,
    (value) => quietly('pause', async () => hold(steps, () => state.pause(messages.parsePause(value), Date.now()))),
    { description: 'Hold before the next step {actor, reason}' },
  );
  setHandler(messages.resume, () => quietly('resume', async () => hold(steps, () => state.resume())), {
    description: 'Go on after a pause, or after the cause of a refused step was repaired',
  });
  setDefaultSignalHandler((name) => log.warn('dropped a signal of unknown name', { signal: name.slice(0, 100) }));
}

/** What the sender really sent is unknown until it is parsed. */
type UpdateFromAnyone = UpdateDefinition<messages.RotationStatus, [unknown]>;
type SignalFromAnyone = SignalDefinition<[unknown]>;

type Read = (value: unknown) => messages.Override;

interface OverrideHandler {
  readonly update: typeof messages.force | typeof messages.exclude | typeof messages.abort;
  readonly signal: typeof messages.forceSignal | typeof messages.excludeSignal | typeof messages.abortSignal;
  readonly read: Read;
  readonly description: string;
}

const overrideHandlers = (state: RotationState): readonly OverrideHandler[] => [
  {
    update: messages.force,
    signal: messages.forceSignal,
    read: (value) => {
      const { phase, actor, reason } = state.readForce(value);
      return { kind: 'force', subject: phase, actor, reason };
    },
    description: 'Open a gate although something is behind {phase, actor, reason}',
  },
  {
    update: messages.exclude,
    signal: messages.excludeSignal,
    read: (value) => {
      const { node, actor, reason } = state.readExclude(value);
      return { kind: 'exclude', subject: node, actor, reason };
    },
    description: 'Go on without one node {node, actor, reason}',
  },
  {
    update: messages.abort,
    signal: messages.abortSignal,
    read: (value) => ({ kind: 'abort', subject: '', ...state.readAbort(value) }),
    description: 'Take the rotation back {actor, reason}',
  },
];

async function record(steps: Steps, override: messages.Override): Promise<messages.RotationStatus> {
  const { state } = steps;
  await condition(() => state.planned);
  const key = overrideKey(override);
  if (!state.overrides.has(key)) {
    const written = await recordOverride({ rotationId: state.rotationId, ...override });
    state.overrides.set(key, written);
  }
  if (override.kind === 'abort' && state.aborting === null && !state.dropped) {
    state.startAbort(override);
    steps.interrupt();
  }
  steps.show();
  return state.status();
}

async function hold(steps: Steps, change: () => void): Promise<void> {
  change();
  steps.show();
}

async function quietly(name: string, handle: () => Promise<unknown>): Promise<void> {
  try {
    await handle();
  } catch (error) {
    log.warn(`ignored the signal ${name}`, { why: error instanceof Error ? error.message.slice(0, 500) : 'not an error' });
  }
}
