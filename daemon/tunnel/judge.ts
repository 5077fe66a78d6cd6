/**
 * May this ticket open a tunnel here, and where does it lead: the machine's own judgement, which is the one that counts (EXEC-006,
 * TUN-004, TUN-005, TUN-013). What the gateway thought of the ticket is not asked.
 */
import { ControlError } from '../../domain/errors.ts';
import { destinationOf, type TunnelOperationName } from '../../domain/tunnels/operations.ts';
import { parseTicketKeys, type TicketGuard, type VerifiedTicket, verifyExecTicket } from '../../pki/exec/index.ts';
import type { AccessSpec } from '../../proto/index.ts';
import { isInstanceAddress, type TunnelConfig } from './config.ts';

export interface TicketJudge {
  /** The access section in force; undefined when there is none. */
  readonly access: AccessSpec | undefined;
  readonly config: TunnelConfig;
  readonly nodeId: string;
  /** Server time. */
  readonly now: number;
  readonly guard: TicketGuard;
}

export interface TunnelPlace {
  readonly host: string;
  readonly port: number;
}

export interface JudgedTicket {
  readonly ticket: VerifiedTicket;
  readonly place: TunnelPlace;
}

const denied = (reason: string, message: string): ControlError => new ControlError('PERMISSION_DENIED', message, { details: { reason } });

/** @throws as verifyExecTicket and destinationOf; PERMISSION_DENIED: no-ticket-issuer, tunnel-operation, tunnel-destination */
export function judgeTicket(text: string, judge: TicketJudge): JudgedTicket {
  const { access, config, nodeId, now, guard } = judge;
  if (access === undefined || access.ticketIssuer === '' || access.jwks.length === 0)
    throw denied('no-ticket-issuer', 'the desired state of this node names nobody whose tickets it takes');
  const keys = parseTicketKeys(access.jwks);
  const ticket = verifyExecTicket(text, { keys, issuer: access.ticketIssuer, nodeId, now, guard });
  return { ticket, place: placeOf(ticket, config) };
}

function placeOf(ticket: VerifiedTicket, config: TunnelConfig): TunnelPlace {
  const destination = destinationOf(ticket);
  if (!config.operations.includes(ticket.op as TunnelOperationName))
    throw denied('tunnel-operation', `the owner of this machine takes no tunnels for ${ticket.op}`);
  if (destination === null) return { host: '127.0.0.1', port: config.sshPort };
  const { address, port } = destination;
  if (isInstanceAddress(config, address)) return { host: address, port };
  throw denied('tunnel-destination', `${address} is in none of the networks that the owner of this machine names`);
}
