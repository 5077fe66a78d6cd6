/** The one translator from an error to what a process leaves behind: two lines on stderr and an exit code. */
import { codeOf, errorTable } from '../domain/errors.ts';
import { redactText } from './log.ts';

/** `error: <what>` and `hint: <what to do>`; an error that is not ours keeps its message and gets INTERNAL's hint. */
export function errorLines(error: unknown): string {
  const what = error instanceof Error && error.message !== '' ? error.message : String(error);
  return `error: ${redactText(what)}\nhint: ${errorTable[codeOf(error)].hint}\n`;
}

export const exitCodeOf = (error: unknown): number => errorTable[codeOf(error)].exit;
