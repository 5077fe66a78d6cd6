/**
 * The tunnels of one machine (TUN-001, TUN-004, TUN-005, TUN-010, TUN-011).
 *
 * A gateway asks by a frame of the session; the machine judges the ticket and opens a Tunnel stream on the same connection, or nothing. It
 * tells nobody why not: its own log does, and who holds no ticket learns nothing about the machine.
 *
 * Threat model: the gateway carries everything and may ask for anything, as often as it likes. It can open what a fresh ticket of the api
 * names, once, and nothing else; it can end a tunnel, and cannot make one last. What goes through a tunnel it can read and change,
 * unless its two ends protect it themselves, as ssh does. The caller is who the api let have a ticket; he reaches what the table of
 * operations and the machine's owner both name. Used tickets are remembered for as long as the process lives, which outlasts any ticket
 * but one that was used within a minute before a restart.
 */
import type { ClientHttp2Stream } from 'node:http2';
import { isControlError } from '../../domain/errors.ts';
import { type TunnelEnd, type TunnelLimits, tunnelLimits } from '../../domain/tunnels/limits.ts';
import { createTicketGuard } from '../../pki/exec/index.ts';
import type { AccessSpec, OpenTunnel } from '../../proto/index.ts';
import type { AgentLog } from '../agent/log.ts';
import { reasonOf } from '../reason.ts';
import { TunnelFrames } from '../transport/tunnel-frames.ts';
import { type TunnelConfig, tunnelCapabilities } from './config.ts';
import { type JudgedTicket, judgeTicket } from './judge.ts';
import { Tunnel } from './tunnel.ts';

export interface TunnelHostPorts {
  readonly config: TunnelConfig;
  readonly nodeId: () => string;
  readonly access: () => AccessSpec | undefined;
  readonly clock: { now(): number; steadyMs(): number };
  readonly log: AgentLog;
  readonly limits?: TunnelLimits;
}

/** Asks for a Tunnel stream on the connection of the session that asked; undefined when that is gone. */
export type RequestStream = () => ClientHttp2Stream | undefined;

export class TunnelHost {
  readonly #ports: TunnelHostPorts;
  readonly #limits: TunnelLimits;
  readonly #guard = createTicketGuard();
  readonly #open = new Set<Tunnel>();

  constructor(ports: TunnelHostPorts) {
    this.#ports = ports;
    this.#limits = ports.limits ?? tunnelLimits;
  }

  get capabilities(): string[] {
    return tunnelCapabilities(this.#ports.config);
  }

  /** How many are open. */
  get size(): number {
    return this.#open.size;
  }

  /** Opens a stream for a ticket that is good, and nothing for one that is not. Never throws. */
  onOpen({ tunnelId, ticket }: OpenTunnel, request: RequestStream): void {
    const { log, clock } = this.#ports;
    // Before the ticket is judged: one that is refused for want of room may be shown again.
    if (this.#open.size >= this.#limits.atOnce)
      return log.warn({ tunnelId, open: this.#open.size }, 'a tunnel was refused: as many are open as may be');
    const judged = this.#judged(tunnelId, ticket);
    const stream = judged === undefined ? undefined : request();
    if (judged === undefined || stream === undefined) return;
    const { sub, sid, op, dst = '' } = judged.ticket;
    log.info({ tunnelId, actor: sub, session: sid, operation: op, destination: dst }, 'a tunnel opens');
    const tunnel = new Tunnel({
      tunnelId,
      frames: new TunnelFrames(stream),
      judged,
      limits: this.#limits,
      steadyMs: () => clock.steadyMs(),
      judge: (text) => this.#judge(text).ticket,
      log,
    });
    this.#open.add(tunnel);
    void tunnel.run().finally(() => this.#open.delete(tunnel));
  }

  closeAll(end: TunnelEnd): void {
    for (const tunnel of this.#open) tunnel.finish(end);
  }

  #judge(ticket: string): JudgedTicket {
    const { access, config, nodeId, clock } = this.#ports;
    return judgeTicket(ticket, { access: access(), config, nodeId: nodeId(), now: clock.now(), guard: this.#guard });
  }

  #judged(tunnelId: string, ticket: string): JudgedTicket | undefined {
    try {
      return this.#judge(ticket);
    } catch (error) {
      if (!isControlError(error)) throw error;
      this.#ports.log.warn(
        { tunnelId: tunnelId.slice(0, 64), reason: reasonOf(error), detail: error.message },
        'a ticket for a tunnel was refused',
      );
      return undefined;
    }
  }
}
