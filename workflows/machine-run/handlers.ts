/**
 * The messages of a run. Whoever may write to the namespace may send them: each is written to the run's record and the audit trail by an
 * activity before it counts, none makes a disk clean or stands for an approval, and what is left of the machine is judged from facts.
 *
 * Validators are synchronous and throw failures only; update handlers may fail, and tell the sender; signals come through the inbox.
 */
import type { UpdateDefinition } from '@temporalio/common';
import { condition, proxyActivities, setHandler } from '@temporalio/workflow';
import type { MetalControlActivities } from '../../activities/metal-control.ts';
import { onControl } from '../shared/activity-options.ts';
import { asOwnFailure, refusing } from '../shared/failures.ts';
import { listen, onSignals } from '../shared/inbox.ts';
import * as messages from '../shared/machine-messages.ts';
import type { MachineRun } from './state.ts';

const { recordRunMessage } = proxyActivities<MetalControlActivities>(onControl);

export interface RunHooks {
  readonly show: () => void;
  /** Ends the wait of the main line, so that it looks at the state. */
  readonly wake: () => void;
}

interface Steering {
  readonly kind: 'override' | 'cancel' | 'give-up';
  readonly update: { readonly name: string };
  readonly signal: { readonly name: string };
  readonly description: string;
  /** @throws ControlError for what is refused now */
  readonly read: (run: MachineRun, value: unknown) => messages.OverrideMessage;
  /** false: it changes nothing any more, and the main line is left alone. */
  readonly apply: (run: MachineRun, message: messages.OverrideMessage) => boolean;
}

const steerings: readonly Steering[] = [
  {
    kind: 'override',
    update: messages.override,
    signal: messages.overrideSignal,
    description: 'I have checked: the step that waits is done {step, actor, reason}',
    read: (run, value) => {
      const message = messages.parseOverride(value);
      run.assertMayOverride(message);
      return message;
    },
    apply: (run, message) => {
      // It may have gone on while the word was written down: then there is nothing to decide any more.
      if (run.goingBack || run.scope.name !== message.step || run.scope.overridden !== null) return false;
      run.scope.overridden = message;
      return true;
    },
  },
  {
    kind: 'cancel',
    update: messages.cancel,
    signal: messages.cancelSignal,
    description: 'Take back what can be taken back, and end {actor, reason}',
    read: (run, value) => {
      const message = messages.parseCancel(value);
      run.assertMayCancel();
      return { ...message, step: run.scope.name };
    },
    apply: (run, { actor, reason }) => {
      if (run.goingBack || run.stopping !== null) return false;
      run.stopping = { as: 'cancel', actor, reason };
      return true;
    },
  },
  {
    kind: 'give-up',
    update: messages.giveUp,
    signal: messages.giveUpSignal,
    description: 'End it where it stands {actor, reason}; the machine is what the facts say',
    read: (run, value) => {
      const message = messages.parseGiveUp(value);
      run.assertRuns('give up');
      return { ...message, step: run.scope.name };
    },
    apply: (run, { actor, reason }) => {
      if (run.phase === 'finishing' || run.phase === 'done') return false;
      run.stopping = { as: 'give-up', actor, reason };
      return true;
    },
  },
];

export function installRunHandlers(run: MachineRun, { show, wake }: RunHooks): void {
  setHandler(messages.status, () => run.status(), { description: 'Step, who is waited for, the last answer, what to type next' });
  const take = async ({ kind, apply }: Steering, { step, actor, reason }: messages.OverrideMessage): Promise<messages.RunStatus> => {
    await condition(() => run.plan !== null);
    const { runId } = run;
    await asOwnFailure(() =>
      recordRunMessage.executeWithOptions({ summary: `${kind} by ${actor}` }, [{ runId, kind, step, actor, reason }]),
    );
    run.keep({ kind, step, actor, reason, at: Date.now() });
    const matters = apply(run, { step, actor, reason });
    show();
    if (matters) wake();
    return run.status();
  };
  for (const steering of steerings) {
    const { update, signal, description } = steering;
    const read = (value: unknown): messages.OverrideMessage => steering.read(run, value);
    setHandler(update as UpdateDefinition<messages.RunStatus, [unknown]>, async (value) => take(steering, read(value)), {
      validator: (value) => {
        refusing(() => read(value));
      },
      description,
    });
    listen({
      signal,
      description: `${description}; no answer, for hours in which no worker runs`,
      read,
      take: (message) => take(steering, message),
    });
  }
  onSignals(show);
}
