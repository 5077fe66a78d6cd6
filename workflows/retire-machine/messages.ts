/** The input of a retirement; its messages are those of every run on a machine. */
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

export type RetireMachineInput = MachineRunInput;

export const workflowType = 'retireMachine';
export const staticSummary = 'Retire a machine: revoke its identity, wipe, see it off';

/** @throws ControlError INVALID_INPUT with every problem */
export const parseRetireMachine = (value: unknown): RetireMachineInput => parseMachineRun(workflowType, value);
