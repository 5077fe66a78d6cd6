/**
 * What entitles a machine to a secret (SEC-006, SEC-007): the three texts of a request, read into one meaning. A request says what it
 * asks for, never what it may have; whether the meaning holds, the broker looks up.
 */

/** Longest of each text in a request. */
export const maxBindingLength = 128;

export interface BindingTexts {
  readonly workflowId: string;
  readonly stepId: string;
  readonly allocationId: string;
}

export type Binding =
  /** An open command of the node names it. */
  | { readonly kind: 'command'; readonly commandId: string }
  /** A boot entry that this site agent serves names it; of which run, the workflow says. */
  | { readonly kind: 'boot-entry'; readonly workflowId: string }
  /** The node's own desired state names it, in this field of this unit or section. */
  | { readonly kind: 'spec'; readonly section: string; readonly field: string }
  /** An instance that runs on the node names it. */
  | { readonly kind: 'allocation'; readonly allocationId: string };

const specPrefix = 'host:';

/** null for texts that mean nothing. */
export function readBinding({ workflowId, stepId, allocationId }: BindingTexts): Binding | null {
  if (allocationId !== '') return workflowId === '' && stepId === '' ? { kind: 'allocation', allocationId } : null;
  if (workflowId.startsWith(specPrefix)) {
    const section = workflowId.slice(specPrefix.length);
    return section === '' || stepId === '' ? null : { kind: 'spec', section, field: stepId };
  }
  if (stepId !== '') return { kind: 'command', commandId: workflowId === '' ? stepId : `${workflowId}/${stepId}` };
  return workflowId === '' ? null : { kind: 'boot-entry', workflowId };
}

/** A command's id in the two texts that bind a secret to it: up to its last slash, and behind it. */
export function splitCommandId(commandId: string): Pick<BindingTexts, 'workflowId' | 'stepId'> {
  const at = commandId.lastIndexOf('/');
  return { workflowId: commandId.slice(0, Math.max(at, 0)), stepId: commandId.slice(at + 1) };
}
