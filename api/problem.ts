/**
 * The HTTP edge's one translator of errors (RFC 9457, with our code, message, hint and details beside). A cause never goes
 * over the wire, an error that is not ours says nothing but that it is not the caller's fault, and NOT_FOUND keeps to the
 * name that was asked for.
 */
import { type Code, ControlError, codeOf, errorTable, isCode, isControlError } from '../domain/errors.ts';

export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: Code;
  readonly message: string;
  readonly hint: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export const problemType = 'application/problem+json';

/** Any thrown value → what the caller is told. Never throws. */
export function toProblem(error: unknown): Problem {
  const code = codeOf(error);
  const { hint, http } = errorTable[code];
  const message = isControlError(error) && code !== 'INTERNAL' ? error.message : 'the request failed by a fault of ours';
  const details = isControlError(error) && code !== 'INTERNAL' ? error.details : {};
  return {
    type: `urn:better-compute:error:${code.toLowerCase().replaceAll('_', '-')}`,
    title: hint,
    status: http,
    detail: message,
    code,
    message,
    hint,
    details,
  };
}

/** The other direction, for clients: what came over the wire → an error of ours; null when it is no problem of ours. */
export function fromProblem(value: unknown): ControlError | null {
  const problem = value as Partial<Problem> | null;
  if (problem === null || typeof problem !== 'object' || !isCode(problem.code) || typeof problem.message !== 'string') return null;
  const details = typeof problem.details === 'object' && problem.details !== null ? problem.details : {};
  return new ControlError(problem.code, problem.message, { details });
}
