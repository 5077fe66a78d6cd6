/**
 * Exec tickets: ES256 JWTs that each open one tunnel on one node, once, within a minute (EXEC).
 *
 * Invariants
 *   - A ticket names one node, one session, one operation and one caller, and has no claim beside those.
 *   - Gateway and node judge by the same code; the node's own judgement counts, with its own memory of what was used.
 *   - Keys come from the node's signed spec, never from a ticket.
 *
 * Threat model: whoever carries a ticket (the caller, the gateway) may keep it, repeat it, or show it to another node. A stolen one is
 * worth one tunnel within a minute, and only before its owner uses it. A hostile api can issue any: the key is its own.
 *
 * Not done here: who may have a ticket (the api asks before it issues), tunnels.
 */
export { maxTicketSeconds, parseTicketIssuer, type TicketClaims, type TicketSubject, ticketType } from './claims.ts';
export { ExecTicketIssuer, type ExecTicketIssuerOptions, execTicketIssuer, type IssuedTicket } from './issuer.ts';
export { type TunnelsOptions, tunnelsOptions } from './options.ts';
export {
  createTicketGuard,
  encodeTicketKeys,
  isForSameTunnel,
  parseTicketKeys,
  type TicketGuard,
  type VerifiedTicket,
  type VerifyTicketOptions,
  verifyExecTicket,
} from './verify.ts';
