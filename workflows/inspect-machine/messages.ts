/** The input of an inspection; its messages are those of every run on a machine. */
import { type MachineRunInput, parseMachineRun } from '../shared/machine-messages.ts';

export {
  cancel,
  cancelSignal,
  giveUp,
  giveUpSignal,
  override,
  overrideSignal,
  parseCancel,
  parseGiveUp,
  parseOverride,
  status,
} from '../shared/machine-messages.ts';

export type InspectMachineInput = MachineRunInput;

export const workflowType = 'inspectMachine';
export const staticSummary = 'Inspect a machine: read its management controller, keep what it says';

/** @throws ControlError INVALID_INPUT with every problem */
export const parseInspectMachine = (value: unknown): InspectMachineInput => parseMachineRun(workflowType, value);
