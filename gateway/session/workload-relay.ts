/**
 * Workload tokens, from a host's question to the broker's answer (WID-033, WID-037, WID-038). The gateway carries both: it can read
 * neither token nor key, and whose question it is the broker sees from the node's own signature.
 *
 * Beside the frames, not among them: a question waits for no record and no command, and its answer for no window. What a session may
 * have under way is bounded, and so is the whole, so that a slow broker costs answers and never sessions.
 */
import type { ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { WorkloadError } from '../../domain/workload/errors.ts';
import {
  decodeMessage,
  encodeMessage,
  type WorkloadTokenRequest,
  WorkloadTokenRequestSchema,
  type WorkloadTokenResponse,
  WorkloadTokenResponseSchema,
} from '../../proto/index.ts';
import type { GatewayLog } from '../log.ts';
import type { GatewayServices } from '../services.ts';
import { peerChainOf } from '../tls/peer.ts';
import type { ServerFrameInit, SessionPeer } from './contract.ts';

/** The part of a session that the relay needs. */
export interface AskingSession {
  readonly peer: SessionPeer;
  readonly stream: ServerHttp2Stream;
  /** Sends unless the session is over by now. */
  answer(frame: ServerFrameInit): void;
}

export const relayLimits = Object.freeze({ perSession: 4, inAll: 256 });

export class WorkloadRelay {
  readonly #services: GatewayServices;
  readonly #log: GatewayLog;
  readonly #underWay = new Map<AskingSession, number>();
  #inAll = 0;

  constructor(services: GatewayServices, log: GatewayLog) {
    this.#services = services;
    this.#log = log;
  }

  /** Answers at once or when the broker has; never throws. */
  relay(session: AskingSession, request: WorkloadTokenRequest): void {
    const { workloadToken } = this.#services;
    // The certificate decides, before anybody is asked: a tenant's machine has no instances of others to speak for.
    if (session.peer.role === 'node-tenant') return refuse(session, request, 'access-denied');
    if (workloadToken === undefined) return refuse(session, request, 'unavailable');
    const before = this.#underWay.get(session) ?? 0;
    if (before >= relayLimits.perSession) return refuse(session, request, 'rate-limited');
    if (this.#inAll >= relayLimits.inAll) return refuse(session, request, 'unavailable');
    this.#count(session, 1);
    void this.#ask(session, request)
      .then((response) => session.answer({ frame: { case: 'workloadTokenResponse', value: response } }))
      .catch((error: unknown) => {
        this.#log.warn({ nodeId: session.peer.nodeId, err: error }, 'the broker of workload tokens did not answer');
        refuse(session, request, 'unavailable');
      })
      .finally(() => this.#count(session, -1));
  }

  #count(session: AskingSession, change: 1 | -1): void {
    const now = (this.#underWay.get(session) ?? 0) + change;
    this.#inAll += change;
    if (now === 0) this.#underWay.delete(session);
    else this.#underWay.set(session, now);
  }

  async #ask(session: AskingSession, request: WorkloadTokenRequest): Promise<WorkloadTokenResponse> {
    const socket = session.stream.session?.socket;
    if (socket === undefined) throw new Error('the connection is gone');
    const bytes = encodeMessage(WorkloadTokenRequestSchema, request, 'workloadTokenRequest');
    const answer = await this.#services.workloadToken?.(bytes, { chain: peerChainOf(socket as TLSSocket) });
    const response = decodeMessage(WorkloadTokenResponseSchema, answer ?? new Uint8Array(), 'workloadTokenResponse');
    if (response.requestId !== request.requestId) throw new Error('the answer is to another request');
    return response;
  }
}

function refuse(session: AskingSession, { requestId }: WorkloadTokenRequest, error: WorkloadError): void {
  session.answer({ frame: { case: 'workloadTokenResponse', value: { requestId: requestId.slice(0, 64), error } } });
}
