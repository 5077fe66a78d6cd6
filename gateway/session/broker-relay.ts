/**
 * What a machine asks of a broker behind the control plane, and the broker's answer: workload tokens (WID-033, WID-037, WID-038) and
 * secrets (KEY-014, SEC-010, SEC-011). The gateway carries both ways: it can read neither what is asked for nor its key, and whose
 * question it is the broker sees from the node's own signature.
 *
 * Beside the frames, not among them: a question waits for no record and no command, and its answer for no window. What a session may
 * have under way of each kind is bounded, and so is the whole, so that a slow broker costs answers and never sessions.
 */
import type { ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { SecretError } from '../../domain/secrets/errors.ts';
import type { WorkloadError } from '../../domain/workload/errors.ts';
import { workloadLimits } from '../../domain/workload/limits.ts';
import {
  type AgentFrame,
  decodeMessage,
  encodeMessage,
  SecretRequestSchema,
  SecretResponseSchema,
  WorkloadTokenRequestSchema,
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

/** The frames that carry a question. */
export type BrokerQuestion = Extract<AgentFrame['frame'], { case: 'workloadTokenRequest' | 'secretRequest' }>;
type QuestionCase = BrokerQuestion['case'];

export const relayLimits = Object.freeze({
  workloadTokenRequest: { perSession: workloadLimits.underWayPerSession, inAll: 256 },
  // A site agent asks for the machines of its whole site.
  secretRequest: { perSession: 64, inAll: 512 },
});

type Service = 'workloadToken' | 'secret';

/** How one kind of question travels. */
interface Relayed {
  readonly service: Service;
  /** The question's bytes, as they were received: every field that is not known here among them (BND-005). */
  encode(value: BrokerQuestion['value']): Uint8Array;
  /** The frame of the broker's answer, and whose question it answers. */
  decode(bytes: Uint8Array): { readonly requestId: string; readonly frame: ServerFrameInit };
  refuse(requestId: string, refusal: Refusal): ServerFrameInit;
}

type Refusal = 'access-denied' | 'unavailable' | 'rate-limited';
const secretWords: Readonly<Record<Refusal, SecretError>> = {
  'access-denied': 'access-denied',
  unavailable: 'unavailable',
  'rate-limited': 'unavailable',
};

const relayed: Readonly<Record<QuestionCase, Relayed>> = Object.freeze({
  workloadTokenRequest: {
    service: 'workloadToken',
    encode: (value) => encodeMessage(WorkloadTokenRequestSchema, value as never, 'workloadTokenRequest'),
    decode(bytes) {
      const value = decodeMessage(WorkloadTokenResponseSchema, bytes, 'workloadTokenResponse');
      return { requestId: value.requestId, frame: { frame: { case: 'workloadTokenResponse', value } } };
    },
    refuse: (requestId, refusal) => {
      const error: WorkloadError = refusal;
      return { frame: { case: 'workloadTokenResponse', value: { requestId, error } } };
    },
  },
  secretRequest: {
    service: 'secret',
    encode: (value) => encodeMessage(SecretRequestSchema, value as never, 'secretRequest'),
    decode(bytes) {
      const value = decodeMessage(SecretResponseSchema, bytes, 'secretResponse');
      return { requestId: value.requestId, frame: { frame: { case: 'secretResponse', value } } };
    },
    refuse: (requestId, refusal) => ({ frame: { case: 'secretResponse', value: { requestId, error: secretWords[refusal] } } }),
  },
});

interface Passage {
  readonly session: AskingSession;
  readonly question: BrokerQuestion;
  readonly kind: Relayed;
}

export class BrokerRelay {
  readonly #services: GatewayServices;
  readonly #log: GatewayLog;
  readonly #underWay: Readonly<Record<QuestionCase, Map<AskingSession, number>>> = {
    workloadTokenRequest: new Map(),
    secretRequest: new Map(),
  };
  readonly #inAll: Record<QuestionCase, number> = { workloadTokenRequest: 0, secretRequest: 0 };

  constructor(services: GatewayServices, log: GatewayLog) {
    this.#services = services;
    this.#log = log;
  }

  /** Answers at once or when the broker has; never throws. */
  relay(session: AskingSession, question: BrokerQuestion): void {
    const passage = { session, question, kind: relayed[question.case] };
    const refusal = this.#refusal(passage);
    if (refusal !== null) return refuse(passage, refusal);
    this.#count(passage, 1);
    void this.#ask(passage)
      .then((frame) => session.answer(frame))
      .catch((error: unknown) => {
        this.#log.warn({ nodeId: session.peer.nodeId, question: question.case, err: error }, 'the broker did not answer');
        refuse(passage, 'unavailable');
      })
      .finally(() => this.#count(passage, -1));
  }

  #refusal({ session, question, kind }: Passage): Refusal | null {
    // The certificate decides, before anybody is asked: a tenant's machine has nothing of others to speak for.
    if (session.peer.role === 'node-tenant') return 'access-denied';
    if (this.#services[kind.service] === undefined) return 'unavailable';
    const { perSession, inAll } = relayLimits[question.case];
    if ((this.#underWay[question.case].get(session) ?? 0) >= perSession) return 'rate-limited';
    return this.#inAll[question.case] >= inAll ? 'unavailable' : null;
  }

  #count({ session, question }: Passage, change: 1 | -1): void {
    const underWay = this.#underWay[question.case];
    const now = (underWay.get(session) ?? 0) + change;
    this.#inAll[question.case] += change;
    if (now === 0) underWay.delete(session);
    else underWay.set(session, now);
  }

  async #ask({ session, question, kind }: Passage): Promise<ServerFrameInit> {
    const socket = session.stream.session?.socket;
    if (socket === undefined) throw new Error('the connection is gone');
    const answer = await this.#services[kind.service]?.(kind.encode(question.value), { chain: peerChainOf(socket as TLSSocket) });
    const { requestId, frame } = kind.decode(answer ?? new Uint8Array());
    if (requestId !== question.value.requestId) throw new Error('the answer is to another request');
    return frame;
  }
}

const refuse = ({ session, question, kind }: Passage, refusal: Refusal): void =>
  session.answer(kind.refuse(question.value.requestId.slice(0, 64), refusal));
