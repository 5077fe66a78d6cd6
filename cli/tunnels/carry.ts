/**
 * The caller's end of a tunnel: bytes of this process to the gateway, and back. As a ProxyCommand of ssh it is all that ssh sees of it.
 *
 * The gateway is believed by the pin that the api named, as a daemon believes it. Before the machine lets the tunnel go, the api is asked
 * for another ticket; when it gives none, the machine ends the tunnel, and so does this.
 */
import type { Readable, Writable } from 'node:stream';
import { requestHeaders } from '../../daemon/transport/call.ts';
import { dialPinned, type GatewayAddress, type PinnedConnection } from '../../daemon/transport/pinned-connection.ts';
import { TunnelFrames, writeWhole } from '../../daemon/transport/tunnel-frames.ts';
import { ControlError, isControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { isTunnelEnd, tunnelEnds, tunnelLimits } from '../../domain/tunnels/limits.ts';
import type { TunnelFrame } from '../../proto/index.ts';

export interface TunnelOffer {
  readonly ticket: string;
  readonly gateway: GatewayAddress;
}

export interface CarryOptions {
  readonly offer: TunnelOffer;
  readonly input: Readable;
  readonly output: Writable;
  /** Another ticket for the same tunnel. @throws what the api refuses it for */
  readonly renew: () => Promise<string>;
  readonly now: () => number;
  /** For people. */
  readonly say: (line: string) => void;
  /** Between two tickets; default: well before one counts no more. */
  readonly renewEveryMs?: number;
}

const dialWithinMs = 15 * second;
const retryRenewMs = 20 * second;

/**
 * Resolves when the tunnel ended as tunnels do.
 *
 * @throws UNAVAILABLE, PERMISSION_DENIED, … when it did not open, or was ended for a reason that is an error
 */
export async function carryTunnel(options: CarryOptions): Promise<void> {
  const { offer, now } = options;
  const connection = await dialPinned({ gateway: offer.gateway, client: null, now: now(), timeoutMs: dialWithinMs });
  try {
    await carryOver(connection, options);
  } finally {
    connection.destroy();
  }
}

async function carryOver(connection: PinnedConnection, options: CarryOptions): Promise<void> {
  const frames = new TunnelFrames(connection.session.request(requestHeaders('Connect'), { endStream: false }));
  await frames.send({ frame: { case: 'ticket', value: { ticket: options.offer.ticket } } });
  const passage = new Passage(frames, options);
  // Nobody reads any more.
  options.output.once('error', () => frames.cut());
  try {
    await frames.read((frame) => passage.onFrame(frame));
  } catch (error) {
    // What the gateway refused it for says more than that the stream was cut.
    if (isControlError(error)) throw error;
  } finally {
    passage.stop();
    frames.end();
  }
  passage.assertEnded();
}

class Passage {
  readonly #frames: TunnelFrames;
  readonly #options: CarryOptions;
  #timer: NodeJS.Timeout | undefined;
  #isOpen = false;
  #end: string | undefined;

  constructor(frames: TunnelFrames, options: CarryOptions) {
    this.#frames = frames;
    this.#options = options;
  }

  onFrame(frame: TunnelFrame['frame']): Promise<void> | void {
    switch (frame.case) {
      case 'opened':
        return this.#onOpened();
      case 'data':
        return this.#onData(frame.value);
      case 'closed':
        this.#end ??= frame.value.reason;
        return;
      case 'resize':
      case 'ticket':
      case undefined:
        return;
    }
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#options.input.destroy();
  }

  /** @throws unless it ended as tunnels do */
  assertEnded(): void {
    if (this.#end === 'ended') return;
    const refused = this.#frames.refusal;
    if (this.#end === undefined && refused !== null) throw refused;
    const end = this.#end ?? 'lost';
    const why = isTunnelEnd(end) ? tunnelEnds[end] : 'the gateway ended it';
    throw new ControlError(end === 'not-reauthorised' ? 'PERMISSION_DENIED' : 'UNAVAILABLE', `the tunnel is over: ${why}`, {
      details: { reason: `tunnel-${end}` },
    });
  }

  #onOpened(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#renewLater(this.#options.renewEveryMs ?? tunnelLimits.ticketCountsMs / 2);
    void this.#send();
  }

  async #onData({ channel, data, end }: { channel: number; data: Uint8Array; end: boolean }): Promise<void> {
    const { output } = this.#options;
    if (channel !== 0 || !this.#isOpen) return;
    if (data.length > 0) await writeWhole(output, data);
    if (end && !output.writableEnded) output.end();
  }

  async #send(): Promise<void> {
    try {
      for await (const chunk of this.#options.input) await this.#frames.sendData(0, chunk as Buffer);
      await this.#frames.sendEnd(0);
    } catch {
      // The tunnel is over, and says why.
    }
  }

  #renewLater(inMs: number): void {
    this.#timer = setTimeout(() => void this.#renew(), inMs);
  }

  async #renew(): Promise<void> {
    const { renew, renewEveryMs = tunnelLimits.ticketCountsMs / 2, say } = this.#options;
    try {
      const ticket = await renew();
      await this.#frames.send({ frame: { case: 'ticket', value: { ticket } } });
      this.#renewLater(renewEveryMs);
    } catch (error) {
      const isAway = isControlError(error) && error.code === 'UNAVAILABLE';
      say(`no new ticket for the tunnel: ${error instanceof Error ? error.message : String(error)}`);
      if (isAway) this.#renewLater(Math.min(retryRenewMs, renewEveryMs));
    }
  }
}
