/**
 * The life of an enrolment over SSH (XC-033 to XC-044, H-20): one table of states and moves, each move one conditional UPDATE. What a machine is
 * while it is enrolled does not change: its identity does, once, when it completes.
 *
 *   open       made by an operator; nothing was done that the node would notice
 *   minted     the machine's own key is known, and its word that it reaches this control plane: with it, and nothing else, it may complete
 *   completed  the machine came with that key: the next generation began, and the one before ended, in that moment
 *   failed, cancelled   over; the generation before serves as it did
 */
import { minute } from '../time.ts';

export const enrolmentStates = Object.freeze(['open', 'minted', 'completed', 'failed', 'cancelled'] as const);
export type EnrolmentState = (typeof enrolmentStates)[number];

export type EnrolmentMove = 'mint' | 'complete' | 'fail' | 'cancel';

export const enrolmentMoves: Readonly<Record<EnrolmentMove, { readonly from: readonly EnrolmentState[]; readonly to: EnrolmentState }>> =
  Object.freeze({
    mint: { from: ['open'], to: 'minted' },
    complete: { from: ['minted'], to: 'completed' },
    fail: { from: ['open', 'minted'], to: 'failed' },
    cancel: { from: ['open', 'minted'], to: 'cancelled' },
  });

/** Nothing follows. */
export const isOver = (state: EnrolmentState): boolean => state !== 'open' && state !== 'minted';

/** From its mint, a machine has this long to come with its new key. */
export const completesWithinMs = 30 * minute;
