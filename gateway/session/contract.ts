/** The words between a session's state machine, the I/O around it and the gateway: types only. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { AgentFrame, ProtocolRange, ServerFrameSchema, TrustRefused } from '../../proto/index.ts';
import type { RefusalReason } from '../grpc/refusals.ts';
import type { BrokerQuestion } from './broker-relay.ts';
import type { SessionReport } from './presence.ts';
import type { HelloFacts } from './read-frames.ts';
import type { CommandAckRow, CommandProgressRow, CommandRejectRow, CommandResultRow } from './store.ts';

export type ServerFrameInit = MessageInitShape<typeof ServerFrameSchema>;

/** A frame as the state machine takes it. */
export interface ReceivedFrame extends Pick<AgentFrame, 'frame'> {
  /** The question in it as its sender wrote it (KEY-014); absent where there is none, or where it came in pieces. */
  readonly question?: Uint8Array;
}

/** What the machine asks of the world. */
export interface SessionEffects {
  /** Record the session; answer with `onOpened`, or end it. */
  open(hello: HelloFacts): void;
  send(frame: ServerFrameInit): void;
  ack(row: CommandAckRow): void;
  reject(row: CommandRejectRow): void;
  result(row: CommandResultRow): void;
  /** How far a command is: the last word of each counts. */
  progress(row: CommandProgressRow): void;
  /** Something to record with the next presence write; soon, when a gate may wait for it. */
  report(report: SessionReport, soon: boolean): void;
  /** There is room for commands that wait in the log. */
  wake(): void;
  trustRefused(refused: TrustRefused): void;
  /** Something to ask of a broker behind the control plane. */
  ask(question: BrokerQuestion): void;
  end(reason: RefusalReason, message?: string): void;
}

export interface SessionTiming {
  readonly helloWithinMs: number;
  readonly heartbeatIntervalMs: number;
  /** Without a frame for this long the stream is dead, however alive the connection looks (B46). */
  readonly silentForMs: number;
  /** Spread of the redials after an unplanned loss. */
  readonly reconnectWindowMs: number;
}

/** What all sessions of a gateway share. */
export interface SessionTerms {
  readonly gatewayId: string;
  readonly protocol: ProtocolRange;
  readonly capabilities: readonly string[];
  readonly timing: SessionTiming;
}

/** What a daemon said about a command. */
export type Said =
  | { readonly kind: 'ack'; readonly row: CommandAckRow }
  | { readonly kind: 'reject'; readonly row: CommandRejectRow }
  | { readonly kind: 'result'; readonly row: CommandResultRow };

export interface SessionPeer {
  readonly nodeId: string;
  readonly role: string;
  readonly certIssuer: string;
  readonly certSerial: string;
  readonly certNotAfter: number;
  readonly address: string;
}

/** What a session asks of the gateway around it; one object for all sessions. */
export interface SessionHost<S> {
  readonly terms: SessionTerms;
  now(): number;
  readonly random: () => number;
  readonly isRecorderFull: boolean;
  open(session: S, hello: HelloFacts): void;
  record(session: S, said: Said): void;
  progress(session: S, row: CommandProgressRow): void;
  reported(session: S, soon: boolean): void;
  wake(session: S): void;
  trustRefused(session: S, refused: TrustRefused): void;
  ask(session: S, question: BrokerQuestion): void;
  ended(session: S, reason: string): void;
  failed(session: S, error: unknown): void;
  closed(session: S): void;
}
