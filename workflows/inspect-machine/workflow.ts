/** What the management controller knows of its machine, into the database: identity, disks, interfaces, its key on first contact. PINNED. */
import { runMachine } from '../machine-run/story.ts';
import { once, type Story } from '../machine-run/table.ts';
import type { RunResult } from '../shared/machine-messages.ts';
import { versioned } from '../shared/versioning.ts';
import { type InspectMachineInput, parseInspectMachine } from './messages.ts';

const inspect: Story = {
  kind: 'inspect',
  steps: [
    {
      name: 'inventory',
      phase: 'reading-bmc',
      saying: 'the management controller to tell what it knows',
      waitsFor: ({ plan }) => [`bmc ${plan?.bmc ?? ''}`, `site ${plan?.siteId ?? ''}`],
      acts: () => once('inventory'),
      observe: 'inventoried',
      onFailure: 'fail',
      onOverride: 'refuse',
    },
  ],
};

export async function inspectMachine(input: InspectMachineInput): Promise<RunResult> {
  return runMachine(inspect, () => parseInspectMachine(input));
}
versioned('PINNED', inspectMachine);
