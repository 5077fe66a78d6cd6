/**
 * The password of a management controller, in two phases: the next one is stored before it is set, and becomes the current one once a
 * session was opened with it. A run that is cut anywhere leaves both stored, of which one holds (M40). PINNED.
 */
import { runMachine } from '../machine-run/story.ts';
import { once, type Story } from '../machine-run/table.ts';
import type { RunResult } from '../shared/machine-messages.ts';
import { versioned } from '../shared/versioning.ts';
import { parseRotateBmcCredentials, type RotateBmcCredentialsInput } from './messages.ts';

const rotate: Story = {
  kind: 'rotate-bmc',
  steps: [
    {
      name: 'store-next',
      phase: 'changing-credentials',
      saying: 'the next password to be stored',
      waitsFor: () => ['database'],
      change: 'store-next',
      onFailure: 'fail',
      onOverride: 'refuse',
    },
    {
      name: 'rotate',
      phase: 'changing-credentials',
      saying: 'the management controller to take the next password',
      waitsFor: ({ plan }) => [`bmc ${plan?.bmc ?? ''}`, `site ${plan?.siteId ?? ''}`],
      acts: () => once('rotate'),
      onFailure: 'hold',
      onOverride: 'assume',
    },
    {
      name: 'adopt',
      phase: 'changing-credentials',
      saying: 'the next password to be the current one',
      waitsFor: () => ['database'],
      change: 'adopt',
      onFailure: 'hold',
      onOverride: 'refuse',
    },
  ],
};

export async function rotateBmcCredentials(input: RotateBmcCredentialsInput): Promise<RunResult> {
  return runMachine(rotate, () => parseRotateBmcCredentials(input));
}
versioned('PINNED', rotateBmcCredentials);
