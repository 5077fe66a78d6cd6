/**
 * What 202 means: the work goes on, and a monitor (or the task itself) says how it ended. Makers differ in which of the two Location
 * names, some name neither, and some forget a task within a minute of its end: then the effect must be looked at instead.
 */
import { minute, second } from '../../../domain/time.ts';
import { type BmcAddress, ownPath } from './address.ts';
import { messagesOf, without } from './refusals.ts';
import { type Json, parseLoosely, printable, textOf } from './resource.ts';
import type { RawAnswer } from './whole-answer.ts';

export type TaskEnd =
  | { readonly kind: 'completed'; readonly body: Json }
  | { readonly kind: 'failed'; readonly state: string; readonly message: string; readonly answer: RawAnswer | null }
  /** It names no task, or has forgotten it: nothing is known of the end. */
  | { readonly kind: 'unknown'; readonly why: string };

/** Not before the task said so, at most half a minute, at least a second. */
export const pollBounds = Object.freeze({ leastMs: second, mostMs: 30 * second, wholeMs: 4 * minute });

/** Retry-After as seconds or as a date. */
export function retryAfterMs(text: string | undefined, now: number): number {
  const plain = text?.trim() ?? '';
  const asked = /^[0-9]{1,6}$/.test(plain) ? Number(plain) * second : Date.parse(plain) - now;
  return Math.min(pollBounds.mostMs, Math.max(pollBounds.leastMs, Number.isFinite(asked) ? asked : 0));
}

const endStates: Readonly<Record<string, 'completed' | 'failed'>> = Object.freeze({
  Completed: 'completed',
  Exception: 'failed',
  Cancelled: 'failed',
  Killed: 'failed',
  Interrupted: 'failed',
});

/** How an answer of a monitor or of a task reads; null: it goes on. */
export function judgeTask(answer: RawAnswer, secrets: readonly string[]): TaskEnd | null {
  if (answer.status === 404) return { kind: 'unknown', why: 'the controller has forgotten the task' };
  if (answer.status === 202) return null;
  const body = parseLoosely(answer) ?? {};
  const state = textOf(body, 'TaskState');
  if (answer.status >= 400) return { kind: 'failed', state: String(answer.status), message: '', answer };
  // A monitor gives the operation's own answer in the end, a task its state.
  if (state === '') return { kind: 'completed', body };
  const end = Object.hasOwn(endStates, state) ? endStates[state] : null;
  if (end === null) return null;
  if (end === 'completed' && textOf(body, 'TaskStatus') !== 'Critical') return { kind: 'completed', body };
  const said = [...messagesOf({ '@Message.ExtendedInfo': body['Messages'] }).map(({ text }) => text), textOf(body, 'TaskStatus')];
  return { kind: 'failed', state, message: without(printable(said.find((text) => text !== '') ?? '', 300), secrets), answer: null };
}

/** Where to ask after a 202; null where nobody is named. */
export function taskPath(answer: RawAnswer, address: BmcAddress): string | null {
  const body = parseLoosely(answer) ?? {};
  return ownPath(answer.headers['location'], address) ?? (textOf(body, 'TaskState') === '' ? null : ownPath(body['@odata.id'], address));
}

export interface TaskPorts {
  readonly address: BmcAddress;
  readonly get: (path: string) => Promise<RawAnswer>;
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  readonly secrets: readonly string[];
}

/** @param answer the 202 */
export async function awaitTask(answer: RawAnswer, ports: TaskPorts): Promise<TaskEnd> {
  const path = taskPath(answer, ports.address);
  if (path === null) return { kind: 'unknown', why: 'the controller answered 202 and named no task' };
  const untilMs = ports.now() + pollBounds.wholeMs;
  let last = answer;
  while (ports.now() < untilMs) {
    await ports.sleep(retryAfterMs(last.headers['retry-after'], ports.now()));
    last = await ports.get(path);
    const end = judgeTask(last, ports.secrets);
    if (end !== null) return end;
  }
  return { kind: 'unknown', why: `the task ${path} has not ended in ${pollBounds.wholeMs / second} s` };
}
