/**
 * HTTP to one management controller, within bounds.
 *
 * Threat model: the controller may be broken or hostile, and anything may sit between. Its certificate is judged by the SHA-256 of its
 * public key before a byte of ours goes out; its own chain means nothing (they are self-signed). An answer has at most 8 MiB and so
 * many seconds; it is text, never compressed. Nothing is followed: a redirect is an answer like any other.
 *
 * Reads share one kept connection and never overlap, and sessions begin and end on it. Each other write has a connection of its own: so a failure before the connection
 * stands proves that nothing was sent, and a kept connection that the controller closes in that moment cannot lose a write.
 *
 * What it does not do: retry, log in, or understand what it carries.
 */
import { createHash, type X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Client } from 'undici';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import type { BmcAddress } from './address.ts';
import { type RawAnswer, wholeAnswer } from './whole-answer.ts';

export interface Exchange {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  /** A write over the kept connection: one whose loss is looked after (a session's beginning and end). */
  readonly isKept?: true;
}

export interface Transport {
  /** @throws UNAVAILABLE (bmc-unreachable; details.sent says whether the request may have arrived), PERMISSION_DENIED (pin-mismatch), INVALID_RESPONSE (bad-answer) */
  send(exchange: Exchange, signal: AbortSignal): Promise<RawAnswer>;
  /** Of the key that the controller showed; null before it did, and without TLS. */
  readonly seenPin: string | null;
  /** Our own address towards it. */
  readonly localAddress: string | null;
  /** From here on each read has a connection of its own too: some controllers choke on those that are kept. */
  dropAfterEach(): void;
  close(): Promise<void>;
}

export interface TransportOptions {
  readonly address: BmcAddress;
  /** null: any key is taken, and reported. */
  readonly pinSha256: string | null;
  readonly limits?: Partial<TransportLimits>;
}

export interface TransportLimits {
  readonly connectMs: number;
  readonly answerMs: number;
  readonly maxBytes: number;
}

export const transportLimits: TransportLimits = Object.freeze({ connectMs: 10 * second, answerMs: 30 * second, maxBytes: 8 * 2 ** 20 });

export function createTransport({ address, pinSha256, limits: given }: TransportOptions): Transport {
  const limits = { ...transportLimits, ...given };
  const seen: Seen = { pin: null, localAddress: null };
  const newConnection = (): Connection => connectionFor({ address, pinSha256, limits, seen });
  let reads: Connection | undefined;
  let keepConnections = true;
  return {
    get seenPin() {
      return seen.pin;
    },
    get localAddress() {
      return seen.localAddress;
    },
    async send(exchange, signal) {
      const isKept = keepConnections && (exchange.method === 'GET' || exchange.isKept === true);
      const connection = isKept ? (reads ??= newConnection()) : newConnection();
      seen.connected = isKept && seen.connected === true;
      try {
        const answer = await askOver(connection, { exchange, address, signal, limits, isKept });
        if (!isKept) await connection.drop();
        return answer;
      } catch (error) {
        // What was given up may still be dialled for; the next read has a connection of its own.
        if (isKept) reads = undefined;
        await connection.drop();
        throw failureOf(error, { address, exchange, signal, isSent: seen.connected });
      }
    },
    dropAfterEach: () => {
      keepConnections = false;
    },
    close: async () => reads?.drop(),
  };
}

interface Asking {
  readonly exchange: Exchange;
  readonly address: BmcAddress;
  readonly signal: AbortSignal;
  readonly limits: TransportLimits;
  readonly isKept: boolean;
}

function askOver({ client }: Connection, { exchange, address, signal, limits, isKept }: Asking): Promise<RawAnswer> {
  const { method, path, headers, body = null } = exchange;
  const bounds = { signal, withinMs: limits.answerMs, maxBytes: limits.maxBytes };
  const tooMuch = (status: number): ControlError => tooLarge(status, { address, exchange, limits });
  return wholeAnswer(client, { method, path, headers, body, reset: !isKept }, { ...bounds, tooLarge: tooMuch });
}

interface Seen {
  pin: string | null;
  localAddress: string | null;
  /** The connection of the request under way stood: its bytes may have arrived. */
  connected?: boolean;
}

interface ConnectionInit {
  readonly address: BmcAddress;
  readonly pinSha256: string | null;
  readonly limits: TransportLimits;
  readonly seen: Seen;
}

let shared: SecureContext | undefined;

/** One for all: no root plays a part, and reading the system's for each connection costs more than the handshake. */
function noRoots(): SecureContext {
  shared ??= createSecureContext({ ca: [], minVersion: 'TLSv1.2' });
  return shared;
}

interface Connection {
  readonly client: Client;
  /** Whatever it is doing, a handshake that nobody answers too. */
  drop(): Promise<void>;
}

function connectionFor({ address, pinSha256, limits, seen }: ConnectionInit): Connection {
  let dialling: AbortController | undefined;
  const client = new Client(address.origin, {
    pipelining: 1,
    headersTimeout: limits.answerMs,
    bodyTimeout: limits.answerMs,
    connect: (options, callback) => {
      dialling = new AbortController();
      const dial = dialerFor(address, { connectMs: limits.connectMs, signal: dialling.signal });
      dial(options, (error, socket) => {
        if (error !== null) return callback(error, null);
        try {
          if (address.origin.startsWith('https:')) seen.pin = judgedPin(socket as TLSSocket, { address, pinSha256 });
          seen.localAddress = socket.localAddress ?? null;
          seen.connected = true;
        } catch (refusal) {
          socket.destroy();
          return callback(refusal as Error, null);
        }
        callback(null, socket);
      });
    },
  });
  return {
    client,
    async drop() {
      await client.destroy();
      // undici leaves a connection that does not stand yet to its own time limit.
      dialling?.abort();
    },
  };
}

/** Of one connection: the signal is its own. */
const dialerFor = ({ host }: BmcAddress, { connectMs, signal }: { connectMs: number; signal: AbortSignal }): buildConnector.connector =>
  buildConnector({
    secureContext: noRoots(),
    // Ours is the verdict, above: by the pin.
    rejectUnauthorized: false,
    // A resumed session shows no certificate to judge.
    maxCachedSessions: 0,
    timeout: connectMs,
    allowH2: false,
    signal,
    ...(isIP(host) === 0 ? { servername: host } : {}),
  });

/** Digest of a certificate → pin of its key. Writing a key down takes OpenSSL longer than the rest of a handshake's verdict. */
const pins = new Map<string, string>();
const pinsMax = 4096;

function pinOf(certificate: X509Certificate): string {
  const known = pins.get(certificate.fingerprint256);
  if (known !== undefined) return known;
  const spki = certificate.publicKey.export({ type: 'spki', format: 'der' });
  const pin = createHash('sha256').update(spki).digest('hex');
  if (pins.size >= pinsMax) pins.clear();
  pins.set(certificate.fingerprint256, pin);
  return pin;
}

function judgedPin(socket: TLSSocket, { address, pinSha256 }: Pick<ConnectionInit, 'address' | 'pinSha256'>): string {
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) throw unreachable(address, 'it showed no certificate', { isSent: false });
  const pin = pinOf(certificate);
  if (pinSha256 === null || pin === pinSha256) return pin;
  throw new ControlError(
    'PERMISSION_DENIED',
    `${address.key} shows key ${pin}, not ${pinSha256} as it is known: nothing was sent. Was its certificate renewed on purpose?`,
    { details: { reason: 'pin-mismatch', seen: pin, expected: pinSha256 } },
  );
}

function tooLarge(
  status: number,
  { address, exchange, limits }: { address: BmcAddress; exchange: Exchange; limits: TransportLimits },
): ControlError {
  const why = `answered ${exchange.method} ${exchange.path} with more than ${limits.maxBytes} bytes`;
  return new ControlError('INVALID_RESPONSE', `${address.key} ${why}`, { details: { reason: 'bad-answer', status } });
}

/** No connection stood, whatever had been kept before. */
const neverConnected = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT']);

interface Failed {
  readonly address: BmcAddress;
  readonly exchange: Exchange;
  readonly signal: AbortSignal;
  readonly isSent: boolean;
}

function failureOf(error: unknown, { address, exchange, signal, isSent }: Failed): unknown {
  if (isControlError(error)) return error;
  // The command's own end, not the controller's.
  if (signal.aborted) return signal.reason;
  const { code, message, name } = error as NodeJS.ErrnoException;
  const wasRefused = code !== undefined && neverConnected.has(code);
  const why = name === 'TimeoutError' ? 'no whole answer in time' : (code ?? message);
  return unreachable(address, `${exchange.method} ${exchange.path}: ${why}`, { isSent: isSent && !wasRefused, cause: error });
}

function unreachable(address: BmcAddress, why: string, { isSent, cause }: { isSent: boolean; cause?: unknown }): ControlError {
  const whether = isSent ? 'it may have arrived' : 'nothing was sent';
  return new ControlError('UNAVAILABLE', `${address.key} does not answer (${why}; ${whether})`, {
    cause,
    details: { reason: 'bmc-unreachable', sent: isSent },
  });
}

/** Whether the request of a failed exchange may have had its effect. */
export const mayHaveArrived = (error: unknown): boolean => !isControlError(error) || error.details['sent'] !== false;
