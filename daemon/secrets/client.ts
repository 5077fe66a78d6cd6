/**
 * Asks for secrets over the daemon's own session, and matches the answers (SEC-002, SEC-003, SEC-017 to SEC-019).
 *
 * Each question has a key of its own, made for it and forgotten with it. An answer counts on the session that carried the question, under
 * the question's id, once, and within 10 seconds; what else comes is passed over. When the session ends first, the same secret is asked
 * for again on the next one, by another question, as long as the 10 seconds last. Values are returned, never kept.
 */
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { createSecretRequest, openSecretResponse, type PendingSecret } from '../../pki/secrets/index.ts';
import { type Signer, signerFromPrivateKey } from '../../pki/x509/index.ts';
import type { SecretRequest, SecretResponse } from '../../proto/index.ts';
import type { IdentityStore } from '../state/identity-store.ts';
import type { SecretBinding, SecretPort } from './port.ts';

/** SEC-018. */
export const answerWithinMs = 10 * second;

/** One welcomed session. */
export interface AskingSession {
  /** False when it takes nothing more. */
  sendSecretRequest(request: SecretRequest): boolean;
}

export interface SecretClientPorts {
  /** The node's key as it is now: a renewal changes it. */
  readonly signer: () => Signer;
  /** Server time, Unix milliseconds. */
  readonly now: () => number;
  /** Calls back after a while, unless it is taken back. */
  readonly after?: (ms: number, callback: () => void) => () => void;
}

/** Of a daemon: by its node's key, in server time. */
export const secretClientOf = ({ identity, clock }: { identity: IdentityStore; clock: { now(): number } }): SecretClient =>
  new SecretClient({ signer: () => signerFromPrivateKey(identity.current.key), now: () => clock.now() });

interface Question {
  readonly session: AskingSession;
  readonly pending: PendingSecret;
  settle(outcome: Outcome): void;
}

type Outcome =
  | { readonly kind: 'answer'; readonly response: SecretResponse }
  | { readonly kind: 'session-ended' }
  | { readonly kind: 'error'; readonly error: ControlError };

const realAfter = (ms: number, callback: () => void): (() => void) => {
  const timer = setTimeout(callback, ms);
  return () => clearTimeout(timer);
};

export class SecretClient implements SecretPort {
  readonly #ports: SecretClientPorts;
  readonly #questions = new Map<string, Question>();
  readonly #waiting = new Set<() => void>();
  #session: AskingSession | undefined;

  constructor(ports: SecretClientPorts) {
    this.#ports = ports;
  }

  /** How many questions have no answer yet. */
  get open(): number {
    return this.#questions.size;
  }

  /** Questions go over this one from now on; those under way stay with theirs. */
  onWelcomed(session: AskingSession): void {
    this.#session = session;
    for (const wake of Array.from(this.#waiting)) wake();
  }

  onEnded(session: AskingSession): void {
    if (this.#session === session) this.#session = undefined;
    for (const question of Array.from(this.#questions.values()))
      if (question.session === session) question.settle({ kind: 'session-ended' });
  }

  /** An answer to nothing, or on another session than its question, has no effect. */
  onResponse(session: AskingSession, response: SecretResponse): void {
    const question = this.#questions.get(response.requestId);
    if (question?.session === session) question.settle({ kind: 'answer', response });
  }

  async read(ref: string, binding: SecretBinding, signal: AbortSignal): Promise<Uint8Array> {
    const { after = realAfter } = this.#ports;
    const deadline = new AbortController();
    const takeBack = after(answerWithinMs, () => deadline.abort());
    try {
      for (;;) {
        const session = this.#session ?? (await this.#nextSession({ ref, signal, deadline: deadline.signal }));
        const value = await this.#ask(session, { ref, binding, signal, deadline: deadline.signal });
        if (value !== undefined) return value;
      }
    } finally {
      takeBack();
    }
  }

  /** @returns undefined when the session ended before the answer */
  async #ask(session: AskingSession, reading: Reading & { readonly binding: SecretBinding }): Promise<Uint8Array | undefined> {
    const { ref, binding } = reading;
    const pending = await createSecretRequest({ signer: this.#ports.signer(), ref, ...binding });
    const outcome = await this.#exchange({ session, pending }, reading);
    if (outcome.kind === 'error') throw outcome.error;
    if (outcome.kind === 'answer') return openSecretResponse(outcome.response, { pending, now: this.#ports.now() });
    if (this.#session === session) this.#session = undefined;
    return undefined;
  }

  #exchange({ session, pending }: Omit<Question, 'settle'>, reading: Reading): Promise<Outcome> {
    const { requestId } = pending.request;
    return new Promise<Outcome>((resolve) => {
      const unwatch = onEnd(reading, (error) => settle({ kind: 'error', error }), 'no answer came within 10 s');
      const settle = (outcome: Outcome): void => {
        unwatch();
        this.#questions.delete(requestId);
        resolve(outcome);
      };
      this.#questions.set(requestId, { session, pending, settle });
      const refused = endOf(reading, 'no answer came within 10 s');
      if (refused !== null) return settle({ kind: 'error', error: refused });
      if (!session.sendSecretRequest(pending.request)) settle({ kind: 'session-ended' });
    });
  }

  #nextSession(reading: Reading): Promise<AskingSession> {
    const what = 'this daemon is not connected';
    return new Promise((resolve, reject) => {
      const done = (): void => {
        unwatch();
        this.#waiting.delete(wake);
      };
      const unwatch = onEnd(
        reading,
        (error) => {
          done();
          reject(error);
        },
        what,
      );
      const wake = (): void => {
        done();
        resolve(this.#session as AskingSession);
      };
      this.#waiting.add(wake);
      const refused = endOf(reading, what);
      if (refused === null) return;
      done();
      reject(refused);
    });
  }
}

interface Reading {
  readonly ref: string;
  /** Of the command that asks. */
  readonly signal: AbortSignal;
  readonly deadline: AbortSignal;
}

/** Why nothing more is waited for; null while something is. */
function endOf({ ref, signal, deadline }: Reading, what: string): ControlError | null {
  if (signal.aborted) return new ControlError('CANCELLED', `asking for ${ref} was cancelled`, { details: { reason: 'cancelled', ref } });
  if (!deadline.aborted) return null;
  const reason = what.startsWith('no answer') ? 'no-answer' : 'not-connected';
  return new ControlError('UNAVAILABLE', `${ref}: ${what}`, { details: { reason, ref } });
}

/** Calls back once, at the first end; the answer takes it back. */
function onEnd(reading: Reading, callback: (error: ControlError) => void, what: string): () => void {
  const end = (): void => {
    unwatch();
    const error = endOf(reading, what);
    if (error !== null) callback(error);
  };
  const unwatch = (): void => {
    reading.signal.removeEventListener('abort', end);
    reading.deadline.removeEventListener('abort', end);
  };
  reading.signal.addEventListener('abort', end, { once: true });
  reading.deadline.addEventListener('abort', end, { once: true });
  return unwatch;
}
