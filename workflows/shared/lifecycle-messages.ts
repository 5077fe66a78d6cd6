/** What every rotation of a key understands: the words that hold it, let it go on and take it back, and what it answers. */
import { readSigned, Shape, type Signed, textLimits } from './shape.ts';

export type AbortMessage = Signed;
export type PauseMessage = Signed;

/** All optional: a rotation starts with no input. */
export interface StartMessage {
  readonly actor?: string;
  readonly reason?: string;
}

export interface Override extends Signed {
  readonly kind: 'force' | 'exclude' | 'abort';
  /** The gate, or the node; empty for an abort. */
  readonly subject: string;
}

export interface Behind {
  readonly reason: string;
  readonly message: string;
  readonly names: readonly string[];
  readonly count: number;
  readonly seenAt: number;
}

export interface Blocked {
  readonly code: string;
  readonly message: string;
  /** The operator has to say when to go on; any other ends the hold by being repaired. */
  readonly waitsFor: 'operator' | 'key bundle' | 'database';
}

/** What the status of every rotation says. */
export interface LifecycleStatus {
  readonly rotationId: string;
  readonly phase: string;
  readonly since: number;
  readonly paused: (Signed & { readonly since: number }) | null;
  /** A step was refused: the rotation holds until the cause is gone, an operator sends `resume`, or aborts. */
  readonly blocked: Blocked | null;
  readonly behind: Behind | null;
  readonly overrides: readonly Override[];
  readonly startedBy: string;
  readonly reason: string;
}

function parseWords(what: string, value: unknown): Signed {
  const shape = new Shape(what, value, ['actor', 'reason']);
  const message = readSigned(shape);
  shape.done();
  return message;
}

/** @throws ControlError INVALID_INPUT */
export function parseAbort(value: unknown): AbortMessage {
  return parseWords('abort', value);
}

/** @throws ControlError INVALID_INPUT */
export function parsePause(value: unknown): PauseMessage {
  return parseWords('pause', value);
}

/** Nothing, null and an empty object all mean "no input". @throws ControlError INVALID_INPUT */
export function parseStartOf(workflow: string, value: unknown): Required<StartMessage> {
  if (value === undefined || value === null) return { actor: '', reason: '' };
  const shape = new Shape(workflow, value, ['actor', 'reason']);
  const message = {
    actor: shape.has('actor') ? shape.text('actor', textLimits.actor) : '',
    reason: shape.has('reason') ? shape.text('reason', textLimits.reason) : '',
  };
  shape.done();
  return message;
}
