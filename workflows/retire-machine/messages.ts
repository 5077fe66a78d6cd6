/** The input of a retirement; its messages are those of every run on a machine. */
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

export interface RetireMachineInput extends MachineRunInput {
  /** What is booted to wipe it, and how it is wiped; absent: as the machine was provisioned last. */
  readonly profile?: Readonly<Record<string, unknown>>;
}

export const workflowType = 'retireMachine';
export const staticSummary = 'Retire a machine: revoke its identity, wipe, see it off';

/** @throws ControlError INVALID_INPUT with every problem */
export function parseRetireMachine(value: unknown): RetireMachineInput {
  const shape = new Shape(workflowType, value, [...machineFields, 'profile']);
  const message = { ...readMachineRun(shape), ...(shape.has('profile') ? { profile: readProfile(shape) } : {}) };
  shape.done();
  return message;
}
