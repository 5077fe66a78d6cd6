/**
 * The conformance entry: the PKI judged from outside, with any data. One JSON case a line in, one JSON answer a line out, in
 * order, one process for all of them.
 *
 * Every case goes through the code that production uses, under this PKI's own rules; nothing here knows a vector. What is
 * stricter than a vector's author is refused, and docs/conformance.md says why. Not done here: judging the answers.
 */
import { answerLine, encodeAnswer } from './answer.ts';
import { readLines } from './lines.ts';
import { getSet } from './sets/table.ts';

export interface ConformanceStreams {
  readonly input: AsyncIterable<Uint8Array>;
  /** Resolves when more can be written. */
  write(text: string): Promise<void>;
  now(): number;
}

/** Answers every line as it comes. INVALID_INPUT for a set that does not exist; nothing else ends the run early. */
export async function runConformance(
  { set, withReasons }: { readonly set: string; readonly withReasons: boolean },
  { input, write, now }: ConformanceStreams,
): Promise<void> {
  const entry = getSet(set);
  for await (const line of readLines(input)) await write(encodeAnswer(answerLine(line, entry, now()), withReasons));
}
