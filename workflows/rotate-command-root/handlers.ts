/** What operators may send to a rotation of the command root. */
import { proxyActivities } from '@temporalio/workflow';
import type { RotationControlActivities } from '../../activities/rotation-control.ts';
import { onControl } from '../shared/activity-options.ts';
import { installHandlers, type OverrideHandler } from '../shared/lifecycle-handlers.ts';
import type { Steps } from '../shared/steps.ts';
import * as messages from './messages.ts';
import type { RotationState } from './state.ts';

export type RotationSteps = Steps<messages.Phase, messages.Gate, RotationState>;

const { recordOverride } = proxyActivities<RotationControlActivities>(onControl);

export function installRotationHandlers(steps: RotationSteps): void {
  const { state } = steps;
  installHandlers<messages.Phase, messages.Gate, messages.RotationStatus>(steps, {
    query: messages.status,
    status: () => state.status(),
    overrides: overridesOf(state),
    record: (override) => recordOverride({ rotationId: state.rotationId, ...override }),
  });
}

const overridesOf = (state: RotationState): readonly OverrideHandler[] => [
  {
    update: messages.force,
    signal: messages.forceSignal,
    read: (value) => {
      const { phase, ...words } = state.readForce(value);
      return { kind: 'force', subject: phase, ...words };
    },
    description: 'Open a gate although something is behind {phase, actor, reason, approvals}',
  },
  {
    update: messages.exclude,
    signal: messages.excludeSignal,
    read: (value) => {
      const { node, ...words } = state.readExclude(value);
      return { kind: 'exclude', subject: node, ...words };
    },
    description: 'Go on without one node {node, actor, reason, approvals}',
  },
  {
    update: messages.abort,
    signal: messages.abortSignal,
    read: (value) => ({ kind: 'abort', subject: '', ...state.readAbort(value) }),
    description: 'Take the rotation back {actor, reason, approvals}',
  },
];
