/**
 * What a machine asks of a broker behind the control plane, and the broker's answer: workload tokens (WID-033, WID-037, WID-038) and
 * secrets (KEY-014, SEC-010, SEC-011); reports of events and their receipts go the same way (SIGN-014). The gateway carries the very bytes
 * both ways: it can read neither what is asked for nor its key, and whose question it is the broker sees from the node's own signature.
 *
 * Beside the frames, not among them: a question waits for no record and no command, and its answer for no window. What a session may
 * have under way of each kind is bounded, and so is the whole, so that a slow broker costs answers and never sessions.
 */
import type { DescMessage, Message } from '@bufbuild/protobuf';
import type { EventError } from '../../domain/capacity/binding.ts';
import type { SecretError } from '../../domain/secrets/errors.ts';
import type { WorkloadError } from '../../domain/workload/errors.ts';
import { workloadLimits } from '../../domain/workload/limits.ts';
import {
  type AgentFrame,
  AgentFrameSchema,
  type Bound,
  bounds,
  decodeMessage,
  EventReceiptSchema,
  EventReportSchema,
  embeddedMessage,
  encodeMessage,
  envelopeOf,
  SecretRequestSchema,
  SecretResponseSchema,
  ServerFrameSchema,
  WorkloadTokenRequestSchema,
  WorkloadTokenResponseSchema,
} from '../../proto/index.ts';
import type { GatewayLog } from '../log.ts';
import type { GatewayServices } from '../services.ts';
import type { ReceivedFrame, SessionPeer } from './contract.ts';

/** The part of a session that the relay needs. */
export interface AskingSession {
  readonly peer: SessionPeer;
  /** DER, leaf first. @throws when the connection is gone */
  peerChain(): readonly Uint8Array[];
  /** Sends an encoded ServerFrame unless the session is over by now. */
  answer(frame: Uint8Array): void;
}

/** The frames that carry a question. */
export type BrokerFrame = Extract<AgentFrame['frame'], { case: 'workloadTokenRequest' | 'secretRequest' | 'eventReport' }>;
type QuestionCase = BrokerFrame['case'];

export const isBrokerFrame = (frame: AgentFrame['frame']): frame is BrokerFrame =>
  frame.case === 'workloadTokenRequest' || frame.case === 'secretRequest' || frame.case === 'eventReport';

export type BrokerQuestion = BrokerFrame & Pick<ReceivedFrame, 'question'>;

/** The frame with the bytes of the question that it carries, if it carries one. */
export function withQuestion(received: AgentFrame, bytes: Uint8Array): ReceivedFrame {
  const { frame } = received;
  if (!isBrokerFrame(frame)) return received;
  const question = embeddedMessage(bytes, AgentFrameSchema.field[frame.case].number);
  return question === null ? received : { frame, question };
}

export const relayLimits = Object.freeze({
  workloadTokenRequest: { perSession: workloadLimits.underWayPerSession, inAll: 256 },
  // A site agent asks for the machines of its whole site.
  secretRequest: { perSession: 64, inAll: 512 },
  eventReport: { perSession: 4, inAll: 256 },
});

type Service = 'workloadToken' | 'secret' | 'event';

/** How one kind of question travels. */
interface Relayed {
  readonly service: Service;
  /** @throws when it is larger than a question may be */
  bytesOf(question: BrokerQuestion): Uint8Array;
  /** Whose question an answer is to. @throws ProtocolError for what is none */
  requestIdOf(answer: Uint8Array): string;
  /** The frame's field that carries answers of this kind. */
  readonly answerField: number;
  refuse(requestId: string, refusal: Refusal): Uint8Array;
}

type Refusal = 'access-denied' | 'unavailable' | 'rate-limited';
/** For what has no word for too much at once. */
const plainWords: Readonly<Record<Refusal, SecretError & EventError>> = {
  'access-denied': 'access-denied',
  unavailable: 'unavailable',
  'rate-limited': 'unavailable',
};

const relayed: Readonly<Record<QuestionCase, Relayed>> = Object.freeze({
  workloadTokenRequest: {
    service: 'workloadToken',
    bytesOf: ({ value, question }) => asSent(WorkloadTokenRequestSchema, { value, question, bound: 'workloadTokenRequest' }),
    requestIdOf: (bytes) => decodeMessage(WorkloadTokenResponseSchema, bytes, 'workloadTokenResponse').requestId,
    answerField: ServerFrameSchema.field.workloadTokenResponse.number,
    refuse: (requestId, refusal) => {
      const error: WorkloadError = refusal;
      return encodeMessage(WorkloadTokenResponseSchema, { requestId, error }, 'workloadTokenResponse');
    },
  },
  secretRequest: {
    service: 'secret',
    bytesOf: ({ value, question }) => asSent(SecretRequestSchema, { value, question, bound: 'secretRequest' }),
    requestIdOf: (bytes) => decodeMessage(SecretResponseSchema, bytes, 'secretResponse').requestId,
    answerField: ServerFrameSchema.field.secretResponse.number,
    refuse: (requestId, refusal) => encodeMessage(SecretResponseSchema, { requestId, error: plainWords[refusal] }, 'secretResponse'),
  },
  eventReport: {
    service: 'event',
    bytesOf: ({ value, question }) => asSent(EventReportSchema, { value, question, bound: 'eventReport' }),
    requestIdOf: (bytes) => decodeMessage(EventReceiptSchema, bytes, 'eventReceipt').requestId,
    answerField: ServerFrameSchema.field.eventReceipt.number,
    refuse: (requestId, refusal) => encodeMessage(EventReceiptSchema, { requestId, error: plainWords[refusal] }, 'eventReceipt'),
  },
});

/** As it came, whatever is in it and however it is written (KEY-014); what came in pieces goes on as what it means. */
function asSent(
  schema: DescMessage,
  { value, question, bound }: { readonly value: unknown; readonly question: Uint8Array | undefined; readonly bound: Bound },
): Uint8Array {
  if (question === undefined) return encodeMessage(schema, value as Message, bound);
  if (question.length <= bounds[bound]) return question;
  throw new Error(`a question of ${question.length} bytes exceeds the bound ${bound} of ${bounds[bound]}`);
}

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
    eventReport: new Map(),
  };
  readonly #inAll: Record<QuestionCase, number> = { workloadTokenRequest: 0, secretRequest: 0, eventReport: 0 };

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
      .then((answer) => session.answer(envelopeOf(answer, passage.kind.answerField)))
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

  /** The broker's answer, as it gave it. */
  async #ask({ session, question, kind }: Passage): Promise<Uint8Array> {
    const answer = await this.#services[kind.service]?.(kind.bytesOf(question), { chain: session.peerChain() });
    if (answer === undefined || kind.requestIdOf(answer) !== question.value.requestId) throw new Error('the answer is to another request');
    return answer;
  }
}

const refuse = ({ session, question, kind }: Passage, refusal: Refusal): void =>
  session.answer(envelopeOf(kind.refuse(question.value.requestId.slice(0, 64), refusal), kind.answerField));
