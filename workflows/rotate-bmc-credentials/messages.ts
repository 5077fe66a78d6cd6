/** The input of a change of credentials; its messages are those of every run on a machine. */
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

export type RotateBmcCredentialsInput = MachineRunInput;

export const workflowType = 'rotateBmcCredentials';
export const staticSummary = 'Change the password of a management controller in two phases';

/** @throws ControlError INVALID_INPUT with every problem */
export const parseRotateBmcCredentials = (value: unknown): RotateBmcCredentialsInput => parseMachineRun(workflowType, value);
