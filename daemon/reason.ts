/** The short name of a refusal: its details.reason, else its code in the same spelling. */
import type { ControlError } from '../domain/errors.ts';

export function reasonOf({ code, details }: ControlError): string {
  const { reason } = details;
  return typeof reason === 'string' && reason !== '' ? reason : code.toLowerCase().replaceAll('_', '-');
}
