/**
 * The daemon listener: one port for Join (server-authenticated) and for everything that needs a certificate.
 *
 * TLS 1.3, no session tickets (a ticket would skip the proof of the client key), the client certificate asked for and judged
 * above (peer.ts), never by OpenSSL. Everything a peer can make us hold is capped: header bytes and pairs, streams, session
 * memory, half-done handshakes.
 */
import { constants as cryptoConstants } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http2';
import {
  createSecureServer,
  type Http2SecureServer,
  type SecureServerOptions,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import { type AddressInfo, createServer, type Server } from 'node:net';
import type { TLSSocket, Server as TlsServer } from 'node:tls';
import type { Scheduler } from '../scheduler.ts';
import type { TurnQueue } from '../turn-queue.ts';
import { Admission } from './admission.ts';
import { type CheckedMaterial, checkMaterial, type TlsMaterial } from './material.ts';

export interface ListenerOptions {
  readonly tls: TlsMaterial;
  /** Options of the listener beside key, cert and ca (TLS-006); they stay over a reload (TLS-017). */
  readonly tlsOptions?: Pick<SecureServerOptions, 'minVersion' | 'maxVersion' | 'ciphers' | 'sigalgs'>;
  readonly scheduler: Scheduler;
  readonly turns: TurnQueue;
  readonly handshakesAtATime?: number;
  onSession(session: ServerHttp2Session, socket: TLSSocket): void;
  onSessionClosed(session: ServerHttp2Session): void;
  onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void;
}

export interface DaemonListener {
  readonly server: Server;
  readonly address: AddressInfo | null;
  /** The authorities that client certificates are judged by now. */
  readonly anchors: readonly Uint8Array[];
  /** @throws INVALID_CONFIG, and changes nothing, when the set does not fit together (TLS-018) */
  setTls(material: TlsMaterial): void;
  /** Accepts no new connection; those that wait at the door are closed. */
  stopAccepting(): void;
  readonly waiting: number;
}

export const handshakeWithinMs = 10_000;

/** Caps of one connection; see the header comment. */
const caps = Object.freeze({
  maxSessionMemory: 4,
  maxHeaderListPairs: 64,
  maxSendHeaderBlockLength: 16 * 1024,
  maxDeflateDynamicTableSize: 1024,
  maxSettings: 16,
  maxSessionInvalidFrames: 100,
  maxSessionRejectedStreams: 50,
  unknownProtocolTimeout: 2_000,
  settings: { maxConcurrentStreams: 32, maxHeaderListSize: 16 * 1024, enablePush: false },
});

export function createDaemonListener(options: ListenerOptions): DaemonListener {
  let material = checkMaterial(options.tls, null);
  const fixed: SecureServerOptions = {
    minVersion: 'TLSv1.3',
    ...options.tlsOptions,
    secureOptions: cryptoConstants.SSL_OP_NO_TICKET,
    requestCert: true,
    rejectUnauthorized: false,
    handshakeTimeout: handshakeWithinMs,
  };
  const http2 = createSecureServer({ ...fixed, ...caps, ...pemOf(material) });
  const admission = createAdmission(http2, options);
  const server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true }, (socket) => admission.offer(socket));
  wire(http2, options);
  return {
    server,
    get address() {
      const address = server.address();
      return address === null || typeof address === 'string' ? null : address;
    },
    get anchors() {
      return material.anchors;
    },
    get waiting() {
      return admission.waiting;
    },
    setTls(next) {
      const checked = checkMaterial(next, material);
      http2.setSecureContext({ ...fixed, ...pemOf(checked) });
      material = checked;
    },
    stopAccepting() {
      if (server.listening) server.close();
      admission.close();
    },
  };
}

const pemOf = ({ key, cert, ca }: CheckedMaterial): { key: string | Buffer; cert: string | Buffer; ca: string | Buffer } => ({
  key,
  cert,
  ca,
});

/** The door of a TLS server whose raw sockets are accepted elsewhere. */
export function createAdmission(
  secure: TlsServer,
  { scheduler, turns, handshakesAtATime = 8 }: Pick<ListenerOptions, 'scheduler' | 'turns' | 'handshakesAtATime'>,
): Admission {
  const admission = new Admission({
    slots: handshakesAtATime,
    leaseMs: 50,
    maxOpen: 1_024,
    maxWaiting: 8_192,
    waitAtMostMs: 30_000,
    scheduler,
    turns,
    admit: (socket) => secure.emit('connection', socket),
  });
  secure.on('secureConnection', (socket: TLSSocket) => admission.finished(socket));
  secure.on('tlsClientError', (_: Error, socket: TLSSocket) => admission.finished(socket));
  return admission;
}

function wire(http2: Http2SecureServer, { onSession, onSessionClosed, onStream }: ListenerOptions): void {
  // One function for all sessions: nothing is closed over per connection.
  function closed(this: ServerHttp2Session): void {
    onSessionClosed(this);
  }
  // node announces the session while it handles the socket; the session itself only shows a proxy that cannot be destroyed.
  let announced: TLSSocket | null = null;
  http2.prependListener('secureConnection', (socket: TLSSocket) => {
    announced = socket;
  });
  http2.on('session', (session) => {
    if (announced === null) return session.destroy();
    session.on('close', closed);
    onSession(session, announced);
    announced = null;
  });
  http2.on('stream', onStream);
  // A broken session has ended; 'close' follows. Unheard, the event would end the process.
  http2.on('sessionError', () => undefined);
  http2.on('error', () => undefined);
}
