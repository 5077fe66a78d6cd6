/** How many tunnels there may be, and how long each may last: kept by the machine, which alone can be believed to end one. */
import { hour, minute, second } from '../time.ts';

export const tunnelLimits = Object.freeze({
  /** Of one machine (TUN-011). */
  atOnce: 16,
  /** From OpenTunnel to `opened`: a machine that refuses a ticket says nothing (TUN-010). */
  openWithinMs: 10 * second,
  dialWithinMs: 5 * second,
  /** A tunnel goes on for this long after its newest ticket; before then its client must have been given another (SBX-018). */
  ticketCountsMs: 5 * minute,
  /** Without a byte either way. */
  idleMs: 15 * minute,
  /** Whatever tickets come. */
  lifetimeMs: 8 * hour,
});

export type TunnelLimits = { readonly [K in keyof typeof tunnelLimits]: number };

/** Why a tunnel ended, as `closed` says it: a closed list, for programs. */
export const tunnelEnds = Object.freeze({
  ended: 'the other end closed it',
  unreachable: 'nothing answers where it leads',
  'not-reauthorised': 'no new ticket came in time: the caller may no longer have it',
  idle: 'nothing was sent for too long',
  lifetime: 'it had lasted as long as a tunnel may',
  'client-fault': 'the client sent what no client sends',
  stopping: 'the daemon stops',
} as const);

export type TunnelEnd = keyof typeof tunnelEnds;

export const isTunnelEnd = (value: string): value is TunnelEnd => Object.hasOwn(tunnelEnds, value);
