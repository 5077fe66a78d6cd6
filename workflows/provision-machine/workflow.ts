/** From a machine that is known by its controller to a node that has joined: steps.ts is the story, machine-run tells it. PINNED. */
import { runMachine } from '../machine-run/story.ts';
import type { RunResult } from '../shared/machine-messages.ts';
import { versioned } from '../shared/versioning.ts';
import { type ProvisionMachineInput, parseProvisionMachine } from './messages.ts';
import { provision } from './steps.ts';

export async function provisionMachine(input: ProvisionMachineInput): Promise<RunResult> {
  return runMachine(provision, () => parseProvisionMachine(input));
}
versioned('PINNED', provisionMachine);
