import { ControlError } from '../../domain/errors.ts';

/** How the readers of this folder refuse: the field by its path (`certificate.nonce`), so that a caller can show where it is wrong. */
export const malformed = (field: string, message: string): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `${field} ${message}`, { details: { reason: 'ssh-form', field } });

/** Well formed, and not one of the few kinds that are taken here. */
export const unsupported = (field: string, message: string): ControlError<'UNSUPPORTED'> =>
  new ControlError('UNSUPPORTED', `${field} ${message}`, { details: { reason: 'ssh-kind', field } });

/** Asked for something that the rules of an authority do not give. */
export const invalid = (field: string, message: string): ControlError<'INVALID_INPUT'> =>
  new ControlError('INVALID_INPUT', `${field} ${message}`, { details: { reason: 'ssh-request', field } });

export const denied = (reason: string, message: string): ControlError<'PERMISSION_DENIED'> =>
  new ControlError('PERMISSION_DENIED', message, { details: { reason } });
