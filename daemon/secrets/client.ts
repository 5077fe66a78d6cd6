/** Asks for secrets over the daemon's own session (SEC-002, SEC-003, SEC-017 to SEC-019). */
import { second } from '../../domain/time.ts';
import { createSecretRequest, openSecretResponse, type PendingSecret } from '../../pki/secrets/index.ts';
import type { SecretRequest, SecretResponse } from '../../proto/index.ts';
import { QuestionClient, type QuestionKind, type QuestionPorts } from '../broker/question-client.ts';
import type { SecretBinding, SecretPort } from './port.ts';

/** SEC-018. */
export const answerWithinMs = 10 * second;

/** One welcomed session. */
export interface SecretSession {
  /** False when it takes nothing more. */
  sendSecretRequest(request: SecretRequest): boolean;
}

type SecretOrder = SecretBinding & { readonly ref: string };

const secretQuestion: QuestionKind<SecretSession, SecretOrder, PendingSecret, SecretResponse, Uint8Array> = {
  withinMs: answerWithinMs,
  told: ({ ref }) => ({ what: ref, details: { ref } }),
  create: (order, signer) => createSecretRequest({ signer, ...order }),
  send: (session, { request }) => session.sendSecretRequest(request),
  open: openSecretResponse,
};

export class SecretClient
  extends QuestionClient<SecretSession, SecretOrder, PendingSecret, SecretResponse, Uint8Array>
  implements SecretPort
{
  constructor(ports: QuestionPorts) {
    super(secretQuestion, ports);
  }

  read(ref: string, binding: SecretBinding, signal: AbortSignal): Promise<Uint8Array> {
    return this.ask({ ref, ...binding }, signal);
  }
}
