import { ControlError } from '../../domain/errors.ts';

/** The one way the readers of this folder refuse bytes. */
export const malformed = (reason: string, message: string): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', message, { details: { reason } });
