/** The host's half of the exchange (WID-024, WID-026): asks over the daemon's own session for the token of an instance that runs here. */
import { second } from '../../domain/time.ts';
import { createWorkloadTokenRequest, openWorkloadTokenResponse, type PendingWorkloadToken } from '../../pki/workload/index.ts';
import type { WorkloadTokenRequest, WorkloadTokenResponse } from '../../proto/index.ts';
import { QuestionClient, type QuestionKind, type QuestionPorts } from '../broker/question-client.ts';

/** Shorter than a secret's time: clients inside an instance give a metadata service a few seconds. */
export const tokenWithinMs = 5 * second;

export interface TokenOrder {
  readonly instanceId: string;
  /** Empty: the issuer's default. */
  readonly audience: string;
}

export interface IssuedToken {
  readonly token: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

/** One welcomed session. */
export interface TokenSession {
  /** False when it takes nothing more. */
  sendWorkloadTokenRequest(request: WorkloadTokenRequest): boolean;
}

const tokenQuestion: QuestionKind<TokenSession, TokenOrder, PendingWorkloadToken, WorkloadTokenResponse, IssuedToken> = {
  withinMs: tokenWithinMs,
  told: ({ instanceId }) => ({ what: `the token of instance ${instanceId}`, details: { instanceId } }),
  create: (order, signer) => createWorkloadTokenRequest({ signer, ...order }),
  send: (session, { request }) => session.sendWorkloadTokenRequest(request),
  open: openWorkloadTokenResponse,
};

export class WorkloadTokenClient extends QuestionClient<
  TokenSession,
  TokenOrder,
  PendingWorkloadToken,
  WorkloadTokenResponse,
  IssuedToken
> {
  constructor(ports: QuestionPorts) {
    super(tokenQuestion, ports);
  }
}
