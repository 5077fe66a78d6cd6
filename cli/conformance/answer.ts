/** A line of input → its answer. Never throws: what cannot be read is refused like what must not be accepted. */
import { ControlError, codeOf, isControlError } from '../../domain/errors.ts';
import { type Case, idOf, parseCase } from './case.ts';
import { maxLineBytes } from './lines.ts';
import type { Judge } from './sets/table.ts';

export interface Answer {
  readonly id: string | number | null;
  readonly result: 'accept' | 'refuse';
  /** Why it is refused: a code of the error table. */
  readonly code?: string;
  readonly value?: unknown;
  /** For people, on request: the reason within the code, and the message. */
  readonly reason?: string;
  readonly message?: string;
}

/** The answer to one line; null stands for a line over the bound. */
export const answerLine = (line: Uint8Array | null, judge: Judge, now: number): Answer => {
  let read: Case;
  try {
    if (line === null)
      throw new ControlError('FRAME_TOO_LARGE', `a line has at most ${maxLineBytes} bytes`, { details: { reason: 'line' } });
    read = parseCase(line);
  } catch (error) {
    return refused(null, error);
  }
  const id = idOf(read);
  try {
    const value = judge(read, now);
    return { id, result: 'accept', ...(value === undefined ? {} : { value }) };
  } catch (error) {
    return refused(id, error);
  }
};

const refused = (id: Answer['id'], error: unknown): Answer => ({
  id,
  result: 'refuse',
  code: codeOf(error),
  reason: reasonOf(error),
  message: error instanceof Error ? error.message : String(error),
});

/** One line of output. */
export const encodeAnswer = ({ id, result, code, value, ...told }: Answer, withReasons: boolean): string =>
  `${JSON.stringify({ id, result, code, value, ...(withReasons ? told : {}) })}\n`;

const reasonOf = (error: unknown): string => {
  const reason = isControlError(error) ? error.details['reason'] : undefined;
  return typeof reason === 'string' ? reason : '';
};
