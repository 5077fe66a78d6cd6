/**
 * One TLS 1.3 connection to the gateway, judged by us before a byte of ours goes out (TRN-011, TRN-025 to TRN-029).
 *
 * The gateway is believed when its chain leads to a certificate authority whose public key is the pinned one, is in force, is
 * for servers, and names the server we asked for. System roots play no part: none are loaded, and OpenSSL's own verdict is
 * not asked. TLS 1.3 itself proves that the peer holds the leaf's key. No session is ever resumed.
 *
 * Time: a machine whose clock is behind would take a new gateway certificate for one of the future. The pinned authority never
 * dates a certificate ahead, so its notBefore proves that the time has come, and the check is made at that instant.
 */
import type { KeyObject } from 'node:crypto';
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { isIP } from 'node:net';
import { connect as connectTls, createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { type Certificate, encodePem, parseCertificate, spkiPin, type VerifiedChain, verifyChain } from '../../pki/x509/index.ts';

export interface GatewayAddress {
  /** https://host:port */
  readonly gatewayUrl: string;
  /** The name the certificate must carry; null: the host of the URL. */
  readonly gatewayServerName: string | null;
  readonly servingCaPin: string;
}

export interface ClientIdentity {
  readonly chain: readonly Uint8Array[];
  readonly key: KeyObject;
}

export interface DialOptions {
  readonly gateway: GatewayAddress;
  /** null for Join: the node has no certificate yet (JOIN-008). */
  readonly client: ClientIdentity | null;
  /** Server time as far as it is known. */
  readonly now: number;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface PinnedConnection {
  readonly session: ClientHttp2Session;
  readonly serverCertificate: Certificate;
  destroy(): void;
}

const longestChain = 4;

/** @throws UNAVAILABLE when there is no connection; PERMISSION_DENIED, BAD_SIGNATURE, CERTIFICATE_EXPIRED, MALFORMED when the gateway is not the pinned one */
export async function dialPinned(options: DialOptions): Promise<PinnedConnection> {
  const url = new URL(options.gateway.gatewayUrl);
  const socket = await handshake(url, options);
  try {
    const verified = verifyGateway(peerChain(socket), options);
    const session = connectHttp2(url, { createConnection: () => socket, settings: { enablePush: false } });
    // Its end shows on the streams; without a listener it would end the process.
    session.on('error', () => undefined);
    return { session, serverCertificate: verified.leaf, destroy: () => session.destroy() };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function handshake(url: URL, options: DialOptions): Promise<TLSSocket> {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const name = options.gateway.gatewayServerName ?? host;
  const socket = connectTls({
    host,
    port: Number(url.port || '443'),
    ...(isIP(name) === 0 ? { servername: name } : {}),
    ALPNProtocols: ['h2'],
    secureContext: secureContextOf(options.client),
    minVersion: 'TLSv1.3',
    // Ours is the verdict, below: by the pin, with the whole chain.
    rejectUnauthorized: false,
    checkServerIdentity: () => undefined,
  });
  socket.setNoDelay(true);
  return new Promise((resolve, reject) => {
    const fail = (why: string, cause?: unknown): void => {
      settle();
      socket.destroy();
      reject(new ControlError('UNAVAILABLE', `no connection to ${url.host}: ${why}`, { cause, details: { reason: 'dial-failed' } }));
    };
    const timer = setTimeout(() => fail(`no answer within ${options.timeoutMs / 1000} s`), options.timeoutMs);
    const onAbort = (): void => fail('given up');
    const onError = (error: Error): void => fail(error.message, error);
    const onClose = (): void => fail('the peer closed it during the handshake');
    const settle = (): void => {
      clearTimeout(timer);
      options.signal?.removeEventListener('abort', onAbort);
      socket.off('close', onClose);
      socket.off('error', onError);
      // Late errors of a socket that was given up are nobody's.
      socket.on('error', () => undefined);
    };
    if (options.signal?.aborted === true) return fail('given up');
    options.signal?.addEventListener('abort', onAbort, { once: true });
    socket.once('error', onError);
    socket.once('close', onClose);
    socket.once('secureConnect', () => {
      settle();
      if (socket.alpnProtocol !== 'h2') return fail('the server does not speak HTTP/2');
      resolve(socket);
    });
  });
}

const contexts = new WeakMap<ClientIdentity, SecureContext>();
let anonymous: SecureContext | undefined;

/** ca is the empty list: with none named, Node would load the system's. One context per identity, which a fleet shares. */
function secureContextOf(client: ClientIdentity | null): SecureContext {
  if (client === null) {
    anonymous ??= createSecureContext({ ca: [], minVersion: 'TLSv1.3' });
    return anonymous;
  }
  let context = contexts.get(client);
  if (context === undefined) {
    context = createSecureContext({
      ca: [],
      minVersion: 'TLSv1.3',
      key: client.key.export({ type: 'pkcs8', format: 'pem' }),
      cert: client.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
    });
    contexts.set(client, context);
  }
  return context;
}

/** DER, leaf first, as the gateway sent it. */
export function peerChain(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = [];
  for (let next = socket.getPeerX509Certificate(); next !== undefined && chain.length < longestChain; next = next.issuerCertificate)
    chain.push(next.raw);
  return chain;
}

/** The pure verdict on the presented chain; see the header for the reasons. */
export function verifyGateway(chain: readonly Uint8Array[], { gateway, now }: Pick<DialOptions, 'gateway' | 'now'>): VerifiedChain {
  const [leafDer] = chain;
  if (leafDer === undefined) throw refused('no-certificate', 'the gateway presented no certificate');
  const anchor = chain.slice(1).find((der) => spkiPin(parseCertificate(der).spki) === gateway.servingCaPin);
  if (anchor === undefined) {
    throw refused('wrong-pin', `the gateway's certificate does not come from the pinned serving CA ${gateway.servingCaPin}`);
  }
  const serverName = gateway.gatewayServerName ?? new URL(gateway.gatewayUrl).hostname.replace(/^\[|\]$/g, '');
  return verifyChain(chain, { anchors: [anchor], purpose: 'server', serverName, now: Math.max(now, madeAt(leafDer), madeAt(anchor)) });
}

/** Issuers backdate by a minute (H-13). It counts only if the chain then verifies, that is, if the pinned key signed it. */
const madeAt = (der: Uint8Array): number => parseCertificate(der).notBefore + minute;

const refused = (reason: string, message: string): ControlError =>
  new ControlError('PERMISSION_DENIED', message, {
    details: { reason, hint: 'check gateway_url and the pin: better-compute pki show prints the pins of the deployment' },
  });
