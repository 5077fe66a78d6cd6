/**
 * One end of a WebSocket connection after its handshake, as a state machine over bytes: answers pings, echoes a close once, tells
 * the peer what it did wrong. Whoever holds the socket brings bytes in, takes bytes out, and closes it when told (RFC 6455, 5.5 and 7).
 */
import {
  closePayload,
  encodeWebSocketFrame,
  WebSocketFault,
  WebSocketReader,
  type WebSocketReaderOptions,
  webSocketCloseCodes,
  webSocketOpcodes,
} from './frames.ts';

export interface WebSocketEnd {
  /** What the peer's close frame said; null: it had none, or none came. */
  readonly code: number | null;
  readonly reason: string;
  /** What was wrong with what the peer sent; null: nothing. */
  readonly fault: WebSocketFault | null;
}

export interface WebSocketLinkOptions extends Omit<WebSocketReaderOptions, 'from'> {
  /** Which end this is. */
  readonly as: 'client' | 'server';
  write(bytes: Uint8Array): void;
  onMessage(payload: Uint8Array, isText: boolean): void;
  onPong(): void;
  /** Nothing more is heard. Close frames have gone both ways, or the peer broke the protocol and was told: close the socket. */
  onEnd(end: WebSocketEnd): void;
}

export class WebSocketLink {
  readonly #options: WebSocketLinkOptions;
  readonly #reader: WebSocketReader;
  #hasSentClose = false;
  #isOver = false;

  constructor(options: WebSocketLinkOptions) {
    const { as, maxMessageBytes, takesText } = options;
    this.#options = options;
    this.#reader = new WebSocketReader({ from: as === 'client' ? 'server' : 'client', maxMessageBytes, takesText });
  }

  /** Messages may still be sent. */
  get isOpen(): boolean {
    return !this.#hasSentClose && !this.#isOver;
  }

  push(chunk: Uint8Array): void {
    if (this.#isOver) return;
    try {
      this.#reader.push(chunk, this);
    } catch (error) {
      if (!(error instanceof WebSocketFault)) throw error;
      this.#sendClose(error.closeCode, error.message);
      this.#end({ code: null, reason: '', fault: error });
    }
  }

  /** @returns the bytes queued; 0: it went nowhere, for a close frame went before */
  send(payload: Uint8Array, opcode: number = webSocketOpcodes.binary): number {
    if (!this.isOpen) return 0;
    return this.#write(opcode, payload);
  }

  ping(payload: Uint8Array = new Uint8Array(0)): void {
    this.send(payload, webSocketOpcodes.ping);
  }

  /** Says goodbye; the peer's answer ends the link. */
  close(code: number = webSocketCloseCodes.normal, reason = ''): void {
    if (!this.#isOver) this.#sendClose(code, reason);
  }

  onMessage(payload: Uint8Array, isText: boolean): void {
    // Sent before the peer heard that this end says no more: it is heard all the same.
    this.#options.onMessage(payload, isText);
  }

  onPing(payload: Uint8Array): void {
    this.send(payload, webSocketOpcodes.pong);
  }

  onPong(): void {
    this.#options.onPong();
  }

  onClose(code: number | null, reason: string): void {
    this.#sendClose(code, '');
    this.#end({ code, reason, fault: null });
  }

  #sendClose(code: number | null, reason: string): void {
    if (this.#hasSentClose) return;
    this.#hasSentClose = true;
    this.#write(webSocketOpcodes.close, closePayload(code, reason));
  }

  #write(opcode: number, payload: Uint8Array): number {
    // A mask is what nobody could foresee (5.3).
    const mask = this.#options.as === 'client' ? crypto.getRandomValues(new Uint8Array(4)) : null;
    const bytes = encodeWebSocketFrame(opcode, payload, mask);
    this.#options.write(bytes);
    return bytes.length;
  }

  #end(end: WebSocketEnd): void {
    this.#isOver = true;
    this.#options.onEnd(end);
  }
}
