/** What carries a session's messages to the gateway and back, and how a gateway is reached: types only. */
import type { ClientHttp2Stream } from 'node:http2';
import type { ControlError } from '../../domain/errors.ts';
import type { Identity } from '../state/identity.ts';
import type { ClientIdentity } from './pinned-connection.ts';

/** One connection with one session on it. */
export interface SessionWire {
  /** Nothing can be written or read any more. */
  readonly isGone: boolean;
  /** Writing has ended, by us or by the connection. */
  readonly isWritable: boolean;
  readonly unsentBytes: number;
  send(message: Uint8Array): void;
  /** What the gateway sends, one after another: while one is worked on, the peer is held back. @throws ControlError for what is no message */
  messages(): AsyncIterable<Uint8Array>;
  ping(onAnswer: () => void): void;
  /** Ends it in peace: what was written goes out first. */
  finish(): void;
  /** At once. */
  destroy(): void;
  /** Resolves when it is gone. */
  readonly closed: Promise<void>;
  /** Resolves when the gateway says that this connection will end. */
  readonly goingAway: Promise<void>;
  /** Why it ended, after it did; null: the gateway said that all is well. */
  verdict(): ControlError | null;
  /** A stream for a tunnel; undefined where there can be none (WS-028). */
  requestTunnel(): ClientHttp2Stream | undefined;
}

export interface DialContext {
  readonly identity: Identity;
  readonly client: ClientIdentity;
  /** Command roots that are held: without one, nothing that a stranger relays could be told from what is signed. */
  readonly commandRoots: number;
  /** Server time as far as it is known. */
  readonly now: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The way to the gateway that the owner of the machine chose. */
export interface GatewayRoute {
  /** What is dialled, for people. */
  shown(identity: Identity): string;
  /** @throws ControlError; PERMISSION_DENIED and its like when the gateway is not the pinned one */
  openSession(context: DialContext): Promise<SessionWire>;
  /** An encoded RenewRequest → an encoded RenewResponse. @throws as openSession, and what the gateway refuses with */
  renew(request: Uint8Array, context: Omit<DialContext, 'commandRoots'>): Promise<Uint8Array>;
}
