/**
 * Asks a broker over the daemon's own session, and matches the answers (SEC-017 to SEC-019, WID-024): what a question of every kind has in
 * common, be it for a secret or for the token of an instance.
 *
 * Each question has a key of its own, made for it and forgotten with it. An answer counts on the session that carried the question, under
 * the question's id, once, and within the time of its kind; what else comes is passed over. When the session ends first, the same is asked
 * for again on the next one, by another question, as long as the time lasts. Values are returned, never kept.
 */
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { type Signer, signerFromPrivateKey } from '../../pki/x509/index.ts';
import type { IdentityStore } from '../state/identity-store.ts';

/** What a question leaves with its asker. */
interface Pending {
  readonly request: { readonly requestId: string };
}

interface Answer {
  readonly requestId: string;
}

/** One kind of question. */
export interface QuestionKind<Session, Order, P extends Pending, A extends Answer, Value> {
  /** A whole number of seconds. */
  readonly withinMs: number;
  /** What is asked for, in words, and what errors say of it to machines. */
  told(order: Order): { readonly what: string; readonly details: Readonly<Record<string, string>> };
  create(order: Order, signer: Signer): Promise<P>;
  /** False when the session takes nothing more. */
  send(session: Session, pending: P): boolean;
  open(answer: A, options: { readonly pending: P; readonly now: number }): Value;
}

export interface QuestionPorts {
  /** The node's key as it is now: a renewal changes it. */
  readonly signer: () => Signer;
  /** Server time, Unix milliseconds. */
  readonly now: () => number;
  /** Calls back after a while, unless it is taken back. */
  readonly after?: (ms: number, callback: () => void) => () => void;
}

/** Of a daemon: by its node's key, in server time. */
export const questionPortsOf = ({ identity, clock }: { identity: IdentityStore; clock: { now(): number } }): QuestionPorts => ({
  signer: () => signerFromPrivateKey(identity.current.key),
  now: () => clock.now(),
});

type Outcome<A> =
  | { readonly kind: 'answer'; readonly answer: A }
  | { readonly kind: 'session-ended' }
  | { readonly kind: 'error'; readonly error: ControlError };

interface Question<Session, P, A> {
  readonly session: Session;
  readonly pending: P;
  settle(outcome: Outcome<A>): void;
}

const realAfter = (ms: number, callback: () => void): (() => void) => {
  const timer = setTimeout(callback, ms);
  return () => clearTimeout(timer);
};

export class QuestionClient<Session extends object, Order, P extends Pending, A extends Answer, Value> {
  readonly #kind: QuestionKind<Session, Order, P, A, Value>;
  readonly #ports: QuestionPorts;
  readonly #questions = new Map<string, Question<Session, P, A>>();
  readonly #waiting = new Set<() => void>();
  #session: Session | undefined;

  constructor(kind: QuestionKind<Session, Order, P, A, Value>, ports: QuestionPorts) {
    this.#kind = kind;
    this.#ports = ports;
  }

  /** How many questions have no answer yet. */
  get open(): number {
    return this.#questions.size;
  }

  /** Questions go over this one from now on; those under way stay with theirs. */
  onWelcomed(session: Session): void {
    this.#session = session;
    for (const wake of Array.from(this.#waiting)) wake();
  }

  onEnded(session: Session): void {
    if (this.#session === session) this.#session = undefined;
    for (const question of Array.from(this.#questions.values()))
      if (question.session === session) question.settle({ kind: 'session-ended' });
  }

  /** An answer to nothing, or on another session than its question, has no effect. */
  onResponse(session: Session, answer: A): void {
    const question = this.#questions.get(answer.requestId);
    if (question?.session === session) question.settle({ kind: 'answer', answer });
  }

  /**
   * What the broker answers to one order.
   *
   * @throws what `open` makes of a refusal; UNAVAILABLE (`no-answer`, `not-connected`) when nothing comes in time; CANCELLED when
   *   `signal` is aborted
   */
  async ask(order: Order, signal: AbortSignal): Promise<Value> {
    const { after = realAfter } = this.#ports;
    const deadline = new AbortController();
    const takeBack = after(this.#kind.withinMs, () => deadline.abort());
    const { withinMs } = this.#kind;
    const asking: Asking = { ...this.#kind.told(order), withinMs, signal, deadline: deadline.signal };
    try {
      for (;;) {
        const session = this.#session ?? (await this.#nextSession(asking));
        const pending = await this.#kind.create(order, this.#ports.signer());
        const outcome = await this.#exchange({ session, pending }, asking);
        if (outcome.kind === 'error') throw outcome.error;
        if (outcome.kind === 'answer') return this.#kind.open(outcome.answer, { pending, now: this.#ports.now() });
        if (this.#session === session) this.#session = undefined;
      }
    } finally {
      takeBack();
    }
  }

  #exchange({ session, pending }: Omit<Question<Session, P, A>, 'settle'>, asking: Asking): Promise<Outcome<A>> {
    const { requestId } = pending.request;
    return new Promise<Outcome<A>>((resolve) => {
      const unwatch = onEnd(asking, 'no-answer', (error) => settle({ kind: 'error', error }));
      const settle = (outcome: Outcome<A>): void => {
        unwatch();
        this.#questions.delete(requestId);
        resolve(outcome);
      };
      this.#questions.set(requestId, { session, pending, settle });
      const refused = endOf(asking, 'no-answer');
      if (refused !== null) return settle({ kind: 'error', error: refused });
      if (!this.#kind.send(session, pending)) settle({ kind: 'session-ended' });
    });
  }

  #nextSession(asking: Asking): Promise<Session> {
    return new Promise((resolve, reject) => {
      const done = (): void => {
        unwatch();
        this.#waiting.delete(wake);
      };
      const unwatch = onEnd(asking, 'not-connected', (error) => {
        done();
        reject(error);
      });
      const wake = (): void => {
        done();
        resolve(this.#session as Session);
      };
      this.#waiting.add(wake);
      const refused = endOf(asking, 'not-connected');
      if (refused === null) return;
      done();
      reject(refused);
    });
  }
}

interface Asking {
  readonly what: string;
  readonly details: Readonly<Record<string, string>>;
  readonly withinMs: number;
  /** Of who asks. */
  readonly signal: AbortSignal;
  readonly deadline: AbortSignal;
}

type Lateness = 'no-answer' | 'not-connected';

/** Why nothing more is waited for; null while something is. */
function endOf({ what, details, withinMs, signal, deadline }: Asking, reason: Lateness): ControlError | null {
  if (signal.aborted)
    return new ControlError('CANCELLED', `asking for ${what} was cancelled`, { details: { reason: 'cancelled', ...details } });
  if (!deadline.aborted) return null;
  const told = reason === 'no-answer' ? `no answer came within ${withinMs / second} s` : 'this daemon is not connected';
  return new ControlError('UNAVAILABLE', `${what}: ${told}`, { details: { reason, ...details } });
}

/** Calls back once, at the first end; the answer takes it back. */
function onEnd(asking: Asking, reason: Lateness, callback: (error: ControlError) => void): () => void {
  const end = (): void => {
    unwatch();
    const error = endOf(asking, reason);
    if (error !== null) callback(error);
  };
  const unwatch = (): void => {
    asking.signal.removeEventListener('abort', end);
    asking.deadline.removeEventListener('abort', end);
  };
  asking.signal.addEventListener('abort', end, { once: true });
  asking.deadline.addEventListener('abort', end, { once: true });
  return unwatch;
}
