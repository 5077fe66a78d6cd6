import { type Code, ControlError } from '../../domain/errors.ts';

/** How the readers of this folder refuse: the field by its path (`jws.header.alg`), so that a caller can show where it is wrong. */
export const refusal = <C extends Code>(
  code: C,
  field: string,
  told: { readonly reason: string; readonly message: string },
): ControlError<C> => new ControlError(code, `${field} ${told.message}`, { details: { reason: told.reason, field } });

export const malformed = (field: string, message: string): ControlError<'MALFORMED'> =>
  refusal('MALFORMED', field, { reason: 'field', message });

export const unsupported = (field: string, message: string): ControlError<'UNSUPPORTED'> =>
  refusal('UNSUPPORTED', field, { reason: 'algorithm', message });
