/** What a look at a run's machine is made of, and what it can say. */
import { type DescMessage, fromBinary, type MessageShape } from '@bufbuild/protobuf';
import type { ActName } from '../domain/metal/acts.ts';
import type { Observed } from './metal-control.ts';
import type { CommandAnswer, RunFacts } from './metal-ports.ts';

export interface Looking {
  readonly facts: RunFacts;
  readonly idOf: (act: ActName) => string;
  /** undefined: no such command was sent. */
  readonly answer: (act: ActName) => Promise<CommandAnswer | undefined>;
  /** Of a profile's own step; 0: of none. */
  readonly ordinal: number;
}

export type Seen = Exclude<Observed, { kind: 'late' }> | { readonly kind: 'not-yet'; readonly detail: string };

const detailKept = 600;

export const reached = (detail: string): Seen => ({ kind: 'reached', detail: detail.slice(0, detailKept) });
export const failed = (reason: string, detail: string): Seen => ({ kind: 'failed', reason, detail: detail.slice(0, detailKept) });

export const decoded = <D extends DescMessage>(schema: D, bytes: Uint8Array): MessageShape<D> => fromBinary(schema, bytes);
