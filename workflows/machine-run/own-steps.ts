/** A profile's own steps in the story of a run: each behind the step that it names, in the profile's order, told as every other one is. */
import type { PlannedOwnStep } from '../../activities/metal-ports.ts';
import type { MachineRun } from './state.ts';
import type { Story, StoryStep } from './table.ts';

/** The steps of a kind, with those of the run's profile among them. A run without any takes the very steps of its story. */
export function stepsFor(story: Story, { plan }: MachineRun): readonly StoryStep[] {
  const own = plan?.ownSteps ?? [];
  if (own.length === 0) return story.steps;
  const behind = (name: string): StoryStep[] => own.filter(({ after }) => after === name).map(storyStepOf);
  // The approval is no step of a story: it comes before the first.
  return [...behind('approve'), ...story.steps.flatMap((step) => [step, ...behind(step.name)])];
}

const storyStepOf = ({ ordinal, name, kind, act, on, repeats }: PlannedOwnStep): StoryStep => ({
  name,
  ordinal,
  phase: 'running-steps',
  saying: `${kind} by ${doers[on]}, as the profile says`,
  waitsFor: ({ plan, input }) => [on === 'site' ? `site ${plan?.siteId ?? ''}` : input.machineId],
  acts: () => [{ act, ordinal }],
  observe: 'step-answered',
  ...(repeats ? { repeats } : {}),
  // What a plugin or a server has done nobody here can see: whoever has looked may say that it is done.
  onFailure: 'hold',
  onOverride: 'assume',
});

const doers = Object.freeze({ site: 'a site agent', ramdisk: 'the ramdisk', node: 'the system that was written' });
