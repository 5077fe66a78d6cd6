/** The input of a provision run; its messages are those of every run on a machine. */
import { type MachineRunInput, machineFields, readMachineRun, readProfile } from '../shared/machine-messages.ts';
import { Shape } from '../shared/shape.ts';

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

export interface ProvisionMachineInput extends MachineRunInput {
  /** The document of the profile: the run keeps to it, whatever becomes of the file. */
  readonly profile: Readonly<Record<string, unknown>>;
}

export const workflowType = 'provisionMachine';
export const staticSummary = 'Provision a machine: boot the ramdisk, wipe, deploy, see the system join';

/** @throws ControlError INVALID_INPUT with every problem */
export function parseProvisionMachine(value: unknown): ProvisionMachineInput {
  const shape = new Shape(workflowType, value, [...machineFields, 'profile']);
  const message = { ...readMachineRun(shape), profile: readProfile(shape) };
  shape.done();
  return message;
}
