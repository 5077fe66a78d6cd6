import { ControlError } from '../../domain/errors.ts';

export const malformed = (field: string, what: string): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `${field} ${what}`, { details: { reason: 'tpm', field } });

/** What a TPM said holds, and is not enough. */
export const refused = (reason: string, message: string): ControlError<'PERMISSION_DENIED'> =>
  new ControlError('PERMISSION_DENIED', message, { details: { reason } });
