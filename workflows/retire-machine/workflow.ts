/**
 * Retirement: the identity ends first, so that a machine that boots its old disk once more speaks for nobody (M28, REV-005); then it is
 * wiped, with evidence, and seen to be off (M20). PINNED.
 */
import { runMachine } from '../machine-run/story.ts';
import { actionsOf, type Story } from '../machine-run/table.ts';
import { letGo, ramdiskSteps } from '../provision-machine/steps.ts';
import type { RunResult } from '../shared/machine-messages.ts';
import { versioned } from '../shared/versioning.ts';
import { parseRetireMachine, type RetireMachineInput } from './messages.ts';

const retire: Story = {
  kind: 'retire',
  steps: [
    {
      name: 'end-identity',
      phase: 'revoking',
      saying: 'the identity of the machine to end',
      waitsFor: () => ['database'],
      change: 'end-identity',
      onFailure: 'hold',
      onOverride: 'refuse',
    },
    ...ramdiskSteps,
    {
      name: 'power-off',
      phase: 'powering-off',
      saying: 'the machine to be off, as its controller says',
      waitsFor: ({ plan }) => [`bmc ${plan?.bmc ?? ''}`],
      acts: (run) => actionsOf(run, 'off'),
      observe: 'off',
      onFailure: 'hold',
      onOverride: 'assume',
    },
    { ...letGo, phase: 'powering-off' },
  ],
};

export async function retireMachine(input: RetireMachineInput): Promise<RunResult> {
  return runMachine(retire, () => parseRetireMachine(input));
}
versioned('PINNED', retireMachine);
