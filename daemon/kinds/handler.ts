/** What a command kind is to the executor. One handler per row of the kind table (domain/commands/kinds.ts). */
import type { DescMessage, Message, MessageInitShape } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import type { EarlierAttempt } from '../../proto/index.ts';
import type { StartNote } from '../state/journal.ts';

export interface KindContext {
  readonly commandId: string;
  /** Aborted when the command is cancelled, runs out of time, or the daemon stops waiting for it. */
  readonly signal: AbortSignal;
  /** Server time, Unix milliseconds. */
  now(): number;
  progress(report: { done: number; total: number; note: string }): void;
  /** What `prepare` noted, durable since before the effect. */
  readonly note: StartNote;
  /** Signed with the command: another one asked for the same before, and nobody knows what became of it. Absent for a first attempt. */
  readonly earlier?: EarlierAttempt | undefined;
}

interface KindAnswer {
  readonly schema: DescMessage;
  readonly value: MessageInitShape<DescMessage>;
}

export type KindEnd =
  | ({ readonly kind: 'succeeded' } & KindAnswer)
  /** answer: what was found out all the same, such as signed evidence of what was not done. */
  | { readonly kind: 'failed'; readonly code: string; readonly message: string; readonly answer?: KindAnswer }
  /** The end cannot be proven (a kind that must not run twice, after a crash). */
  | { readonly kind: 'interrupted'; readonly message: string };

export interface KindHandler {
  /** false: the machine's owner gives it nothing to do this with. It answers UNSUPPORTED, and Hello does not announce it (SKEW-001). */
  readonly isOffered?: false;
  /** Looks before the leap: facts to be durable before the effect. Has no effect itself. */
  prepare?(payload: Message, context: Omit<KindContext, 'note'>): Promise<StartNote>;
  /** Does it. Throws ControlError; a thrown error is a failed command. */
  run(payload: Message, context: KindContext): Promise<KindEnd>;
  /** After a crash between start and end: what can be proven. Without it, a kind that must not run twice is interrupted. */
  recover?(payload: Message, context: KindContext): Promise<KindEnd>;
}

export type KindHandlers = Readonly<Record<string, KindHandler>>;

/** Thrown when the daemon goes away: no end is recorded, the next start takes the command up. */
export const leftToNextStart = new ControlError('CANCELLED', 'the daemon is stopping', { details: { reason: 'leaving' } });

/** A typed success. */
export const succeeded = <D extends DescMessage>(schema: D, value: MessageInitShape<D>): KindEnd => ({
  kind: 'succeeded',
  schema,
  value,
});
