/** What every rotation of a key understands: the words that hold it, let it go on and take it back, and what it answers. */
import { isRecord, kindOf, readSigned, Shape, type Signed, textLimits } from './shape.ts';

/** What an approver signed about this override (H-08); needed once an approver set is published. */
export interface OverrideApproval {
  readonly kid: string;
  readonly sig: string;
}

export interface Approved {
  readonly approvals?: readonly OverrideApproval[];
}

export type AbortMessage = Signed & Approved;
export type PauseMessage = Signed;

/** All optional: a rotation starts with no input. */
export interface StartMessage {
  readonly actor?: string;
  readonly reason?: string;
}

export interface Override extends Signed, Approved {
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

/** More approvers than a set has are none. */
const approvalsAtMost = 64;

/** Empty: none were brought, which the activity judges. Who signed what is its business too; here a list has to look like one. */
export function readApprovals(shape: Shape): Approved {
  if (!shape.has('approvals')) return {};
  const value = shape.get('approvals');
  if (!Array.isArray(value) || value.length > approvalsAtMost) {
    shape.problem(`approvals must be a list of at most ${approvalsAtMost} {kid, sig}, got ${kindOf(value)}`);
    return {};
  }
  const approvals = value.map((one: unknown) => {
    const { kid, sig } = isRecord(one) ? one : {};
    if (typeof kid === 'string' && typeof sig === 'string' && kid.length === 64 && sig.length === 86) return { kid, sig };
    shape.problem('approvals holds one that is not {kid: 64 hex digits, sig: 86 characters of base64url}');
    return { kid: '', sig: '' };
  });
  return approvals.length === 0 ? {} : { approvals };
}

/** @throws ControlError INVALID_INPUT */
export function parseAbort(value: unknown): AbortMessage {
  const shape = new Shape('abort', value, ['actor', 'reason', 'approvals']);
  const message = { ...readSigned(shape), ...readApprovals(shape) };
  shape.done();
  return message;
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
