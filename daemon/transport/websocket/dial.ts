/**
 * HTTP/1.1 to a gateway's WebSocket listener, through whatever stands in between: the session's handshake and the renewal.
 *
 * TLS is judged as on gRPC, by the pinned serving CA; or, where a proxy takes it apart, by the authorities of `proxyCaFile`, and then it
 * proves that we speak to that proxy and nothing else (WS-022). Either way the gateway is believed by what it signed: its chain leads to
 * the pinned serving CA, its key signed our nonce, and not long ago (WS-023 to WS-025). Before that no frame of ours goes out.
 */
import { randomBytes } from 'node:crypto';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { ControlError, codeOf } from '../../../domain/errors.ts';
import { handshakeNonceBytes, readGatewayProof, signNodeProof, verifyGatewayProof } from '../../../pki/handshake/index.ts';
import { signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { bounds, renewContentType, webSocketHeaders, webSocketPaths } from '../../../proto/index.ts';
import { daemonVersion } from '../../version.ts';
import { refusalFacts, refusalOf } from '../grpc-status.ts';
import { peerChain, verifyGateway } from '../pinned-connection.ts';
import type { DialContext } from '../wire.ts';
import { isAnswerTo, newKey, upgradeHeaders } from './handshake.ts';
import { connectTo, type ProxyEnvironment } from './proxy.ts';

export interface WebSocketSettings {
  /** wss://host[:port] */
  readonly url: string;
  /** PEM of the authorities of a proxy that takes TLS apart; null: none does. */
  readonly proxyCa: string | null;
  readonly env: ProxyEnvironment;
}

interface Dial extends Omit<DialContext, 'commandRoots'> {
  readonly settings: WebSocketSettings;
}

const gatewayOf = ({ identity, settings }: Dial) => ({
  gatewayUrl: `https://${new URL(settings.url).host}`,
  gatewayServerName: identity.gatewayServerName,
  servingCaPin: identity.servingCaPin,
});

/**
 * A machine whose clock is off is told the time with its refusal and says it back, once: what it then learns in Welcome is what moves its
 * clock. Certificates are judged by its own time all the same.
 *
 * @returns the socket after the 101; nothing was read from it yet
 */
export async function dialSession(dial: Dial): Promise<Duplex> {
  try {
    return await handshake(dial, dial.now);
  } catch (error) {
    const { serverTimeMs } = refusalFacts(error);
    if (codeOf(error) !== 'CLOCK_SKEW' || serverTimeMs === null) throw error;
    return handshake(dial, serverTimeMs);
  }
}

/** @param toldMs what both ends take for the server's time */
async function handshake(dial: Dial, toldMs: number): Promise<Duplex> {
  const nonce = randomBytes(handshakeNonceBytes);
  const { identity, client } = dial;
  const { trustDomain, nodeId } = identity;
  const statement = { trustDomain, nodeId, nonce, timeMs: BigInt(Math.round(toldMs)) };
  const proof = await signNodeProof({ signer: signerFromPrivateKey(client.key), chain: client.chain }, statement);
  const key = newKey();
  return within(dial, async (signal) => {
    const asking = ask(dial, await secure(dial, signal), {
      method: 'GET',
      path: webSocketPaths.session,
      headers: upgradeHeaders(key, proof),
    });
    asking.end();
    const { answer, socket } = await upgraded(asking);
    try {
      if (!isAnswerTo(key, answer.headers))
        throw refused('websocket-handshake', 'the answer to the WebSocket handshake is not to our request');
      proveGateway(answer.headers[webSocketHeaders.gatewayProof], { dial, nonce, toldMs });
      return socket;
    } catch (error) {
      socket.destroy();
      throw error;
    }
  });
}

/** POST /v1/renew. */
export function postRenew(body: Uint8Array, dial: Dial): Promise<Uint8Array> {
  return within(dial, async (signal) => {
    const headers = { 'content-type': renewContentType, 'content-length': String(body.length) };
    const asking = ask(dial, await secure(dial, signal), { method: 'POST', path: webSocketPaths.renew, headers });
    asking.end(body);
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      asking.once('response', resolve);
      asking.on('error', (cause) => reject(lost(cause)));
    });
    const pieces: Buffer[] = [];
    let size = 0;
    try {
      for await (const piece of answer) {
        size += (piece as Buffer).length;
        if (size > bounds.renewResponse)
          throw new ControlError('FRAME_TOO_LARGE', `the answer has more than ${bounds.renewResponse} bytes`);
        pieces.push(piece as Buffer);
      }
    } catch (error) {
      throw error instanceof ControlError ? error : lost(error);
    } finally {
      answer.destroy();
    }
    if (answer.statusCode === 200 && answer.headers['content-type'] === renewContentType) return Buffer.concat(pieces);
    throw notServed(answer);
  });
}

const lost = (cause: unknown): ControlError =>
  new ControlError('UNAVAILABLE', 'the connection to the gateway was lost', { cause, details: { reason: 'connection-lost' } });

/** One deadline for everything until there is an answer; what was opened by then is closed with it. */
async function within<T>({ signal, timeoutMs }: Dial, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const onAbort = (): void => stop.abort();
  const timer = setTimeout(onAbort, timeoutMs);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await work(stop.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    const why = signal.aborted ? 'given up' : `no answer of the gateway within ${timeoutMs / 1000} s`;
    throw new ControlError('UNAVAILABLE', why, { details: { reason: 'dial-failed' }, cause: error });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

/** TLS to the gateway, or to the proxy that answers in its name. */
async function secure(dial: Dial, signal: AbortSignal): Promise<TLSSocket> {
  const url = new URL(dial.settings.url);
  const tcp = await connectTo(new URL(`https://${url.host}`), { env: dial.settings.env, signal });
  const { proxyCa } = dial.settings;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // The proxy is known by the name that was dialled; the gateway by the name that was pinned.
  const name = proxyCa === null ? (dial.identity.gatewayServerName ?? host) : host;
  const socket = connectTls({
    socket: tcp,
    ...(isIP(name) === 0 ? { servername: name } : { host: name }),
    ALPNProtocols: ['http/1.1'],
    minVersion: proxyCa === null ? 'TLSv1.3' : 'TLSv1.2',
    // With none named, Node would load the system's.
    ca: proxyCa ?? [],
    rejectUnauthorized: proxyCa !== null,
    ...(proxyCa === null ? { checkServerIdentity: () => undefined } : {}),
  });
  signal.addEventListener('abort', () => socket.destroy(), { once: true });
  await new Promise<void>((resolve, reject) => {
    socket.once('secureConnect', resolve);
    socket.on('error', (cause) =>
      reject(
        new ControlError('UNAVAILABLE', `no connection to ${url.host}: ${cause.message}`, { cause, details: { reason: 'dial-failed' } }),
      ),
    );
    socket.once('close', () => reject(lost(undefined)));
  });
  socket.on('error', () => undefined);
  if (proxyCa !== null) return socket;
  try {
    verifyGateway(peerChain(socket), { gateway: gatewayOf(dial), now: dial.now });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

interface Asking {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

function ask({ settings }: Dial, socket: TLSSocket, { method, path, headers }: Asking): ClientRequest {
  return request({
    createConnection: () => socket,
    method,
    path,
    headers: { host: new URL(settings.url).host, 'user-agent': `bcd/${daemonVersion}`, ...headers },
    maxHeaderSize: 32 * 1024,
  });
}

function upgraded(asking: ClientRequest): Promise<{ answer: IncomingMessage; socket: Duplex }> {
  return new Promise((resolve, reject) => {
    asking.on('error', (cause) => reject(lost(cause)));
    asking.once('response', (answer) => {
      answer.destroy();
      reject(notServed(answer));
    });
    asking.once('upgrade', (answer, socket, head) => {
      socket.on('error', () => undefined);
      if (head.length > 0) socket.unshift(head);
      resolve({ answer, socket });
    });
  });
}

/** What the headers of a refusal say, as on gRPC; else what the status means. */
function notServed({ statusCode = 0, headers }: IncomingMessage): ControlError {
  const told = headers['grpc-status'] === undefined ? null : refusalOf({ ...headers, ':status': String(statusCode) });
  return (
    told ??
    new ControlError('UNAVAILABLE', `the gateway, or a proxy before it, answered ${statusCode}`, {
      details: { reason: 'no-status', grpc: 14, pushbackMs: null, serverTimeMs: null },
    })
  );
}

const refused = (reason: string, message: string, cause?: unknown): ControlError =>
  new ControlError('PERMISSION_DENIED', message, {
    cause,
    details: { reason, hint: 'a proxy may have answered in the place of the gateway: check websocket.url of this daemon' },
  });

/** WS-023 to WS-025. */
function proveGateway(
  header: string | string[] | undefined,
  { dial, nonce, toldMs }: { readonly dial: Dial; readonly nonce: Uint8Array; readonly toldMs: number },
): void {
  if (typeof header !== 'string') throw refused('gateway-unproven', 'what answered did not prove that it is the gateway');
  const { identity, now } = dial;
  const proof = readGatewayProof(header);
  const { leaf } = verifyGateway(proof.chain, { gateway: gatewayOf(dial), now });
  verifyGatewayProof(proof, { trustDomain: identity.trustDomain, nodeId: identity.nodeId, nonce, key: leaf.spki, now: toldMs });
}
