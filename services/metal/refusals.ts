/** The refusals that several services of machines share. */
import { judgeReason } from '../../domain/batch/limits.ts';
import { ControlError } from '../../domain/errors.ts';

export const unknownMachine = (machineId: string): ControlError<'NOT_FOUND'> =>
  new ControlError('NOT_FOUND', `no machine is called ${machineId.slice(0, 80)}`, { details: { reason: 'unknown-machine', machineId } });

export const unknownRun = (runId: string): ControlError<'NOT_FOUND'> =>
  new ControlError('NOT_FOUND', `there is no run ${runId.slice(0, 80)}`, { details: { reason: 'unknown-run', runId } });

export const machineState = (message: string, details: Readonly<Record<string, unknown>>): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', message, { details: { reason: 'machine-state', ...details } });

export const machineChanged = (machineId: string): ControlError<'CONFLICT'> =>
  new ControlError('CONFLICT', `machine ${machineId} changed meanwhile`, { details: { reason: 'machine-changed', machineId } });

/** What a person does to a machine by hand stands in the trail with a name and a reason. @throws INVALID_INPUT */
export function assertSigned(what: string, { actor, reason }: { readonly actor: string; readonly reason: string }): void {
  if (actor.trim() === '') {
    throw new ControlError('INVALID_INPUT', `${what} needs an actor: who says so`, { details: { reason: 'actor-needed' } });
  }
  const problem = judgeReason(reason);
  if (problem === null) return;
  const message = problem.reason === 'empty-reason' ? `${what} needs a reason` : problem.message;
  throw new ControlError('INVALID_INPUT', message, { details: { reason: problem.reason } });
}
