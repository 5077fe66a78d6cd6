/**
 * The internal listener: what a gateway relays (JOIN-020). Mutual TLS under the internal authority; request and response bytes
 * pass as they are, so the daemon's signature and ours meet without a re-encoding between.
 *
 *   POST /internal/v1/join    JoinRequest bytes → JoinResponse bytes
 *   POST /internal/v1/renew   RenewRequest bytes, x-bc-peer-chain: base64 DER, comma-separated, leaf first → RenewResponse bytes
 *   POST /internal/v1/workload-token, /internal/v1/secret, /internal/v1/event   the request's bytes, the same header → the response's bytes
 *
 * Threat model: anyone who reaches the port. The certificate is judged from its bytes at every request, never from what the TLS
 * library said of the handshake (H-11): chain to the internal authority, time, usage, role gateway. A gateway that lies about a
 * peer's chain gains nothing: the renewal's own proof is signed by the node. What it does not do: decide joins.
 */
import { constants } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server, type ServerOptions } from 'node:https';
import type { TLSSocket } from 'node:tls';
import { ControlError, codeOf } from '../domain/errors.ts';
import { verifyChain } from '../pki/x509/index.ts';
import { bounds } from '../proto/bounds.ts';
import type { Log } from '../runtime/log.ts';
import type { GatewayServices } from '../services/gateway-port.ts';
import { readBody } from './json-body.ts';
import { problemType, toProblem } from './problem.ts';
import { assertPair, type TlsPair } from './tls-pair.ts';

export interface InternalListenerOptions {
  readonly tls: TlsPair;
  /** The internal authority's certificates, DER; asked at every request, for an authority may be renewed. */
  readonly anchors: () => readonly Uint8Array[];
  readonly services: GatewayServices;
  readonly log: Pick<Log, 'info' | 'warn' | 'error'>;
  now(): number;
  /** Called once a request, for metrics: the code of the error table, or OK. */
  readonly observe?: (kind: string, code: string) => void;
}

/** Chains travel in a header. */
const maxHeaderBytes = 128 * 1024;
const requestWithinMs = 30_000;
/** A gateway asks every now and then: at node's own 5 s nearly every question would cost both sides a handshake. */
const idleForMs = 30_000;

export function createInternalListener(options: InternalListenerOptions): Server {
  const server = createServer(listenerTls(options), (request, response) => void answer(options, request, response));
  server.keepAliveTimeout = idleForMs;
  return server;
}

/** No tickets: a session that is resumed would prove no key (H-11). */
const contextOptions = Object.freeze({ minVersion: 'TLSv1.3', secureOptions: constants.SSL_OP_NO_TICKET } as const);

/**
 * New handshakes get this pair from now on; open connections and the other options stay (TLS-010, TLS-016, TLS-017).
 *
 * @throws INVALID_CONFIG, and changes nothing, when the key is not the certificate's (TLS-018)
 */
export function setListenerTls(server: Server, pair: TlsPair): void {
  assertPair(pair);
  server.setSecureContext({ ...pair, ...contextOptions });
}

const listenerTls = ({ tls }: InternalListenerOptions): ServerOptions => ({
  ...tls,
  ...contextOptions,
  requestCert: true,
  // Judged below, by our own rules, with an answer that says what is wrong.
  rejectUnauthorized: false,
  maxHeaderSize: maxHeaderBytes,
  requestTimeout: requestWithinMs,
});

interface Relay {
  readonly kind: string;
  readonly maxBytes: number;
  readonly run: (services: GatewayServices, body: Uint8Array, request: IncomingMessage) => Promise<Uint8Array>;
}

/** A question to a broker that this control plane may not have. */
const brokered =
  (name: 'workloadToken' | 'secret' | 'event', what: string): Relay['run'] =>
  (services, body, request) => {
    const broker = services[name];
    if (broker !== undefined) return broker(body, { chain: parsePeerChain(request.headers['x-bc-peer-chain']) });
    throw new ControlError('UNSUPPORTED', `this control plane has no ${what} service`, { details: { reason: 'no-such-service' } });
  };

const relays: Readonly<Record<string, Relay>> = Object.freeze({
  '/internal/v1/join': { kind: 'join', maxBytes: bounds.joinRequest, run: (services, body) => services.join(body) },
  '/internal/v1/renew': {
    kind: 'renew',
    maxBytes: bounds.renewRequest,
    run: (services, body, request) => services.renew(body, { chain: parsePeerChain(request.headers['x-bc-peer-chain']) }),
  },
  '/internal/v1/workload-token': {
    kind: 'workload-token',
    maxBytes: bounds.workloadTokenRequest,
    run: brokered('workloadToken', 'workload token'),
  },
  '/internal/v1/event': { kind: 'event', maxBytes: bounds.eventReport, run: brokered('event', 'event') },
  '/internal/v1/secret': { kind: 'secret', maxBytes: bounds.secretRequest, run: brokered('secret', 'secret') },
});

async function answer(options: InternalListenerOptions, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const relay = Object.hasOwn(relays, request.url ?? '') ? relays[request.url ?? ''] : undefined;
  try {
    assertGateway(request.socket as TLSSocket, options);
    if (relay === undefined || request.method !== 'POST') {
      throw new ControlError('NOT_FOUND', `nothing is at ${request.method} ${request.url?.slice(0, 200)}`, {
        details: { reason: 'unknown-path' },
      });
    }
    const bytes = await relay.run(options.services, await readBody(request, relay.maxBytes), request);
    response.writeHead(200, { 'content-type': 'application/x-protobuf', 'content-length': bytes.length }).end(bytes);
    options.observe?.(relay.kind, 'OK');
  } catch (error) {
    refuse(options, error, { request, response });
    options.observe?.(relay?.kind ?? 'other', codeOf(error));
  }
}

function refuse(
  { log }: InternalListenerOptions,
  error: unknown,
  { request, response }: { request: IncomingMessage; response: ServerResponse },
): void {
  const problem = toProblem(error);
  log[problem.status >= 500 ? 'error' : 'info']({ err: error, path: request.url, status: problem.status }, 'relay refused');
  // What was not read of a refused body would be taken for the next request.
  response.writeHead(problem.status, { 'content-type': problemType, connection: 'close' }).end(JSON.stringify(problem));
}

/** @throws UNAUTHENTICATED without a certificate; what verifyChain throws; PERMISSION_DENIED for another role */
function assertGateway(socket: TLSSocket, { anchors, now }: InternalListenerOptions): void {
  const chain = presentedChain(socket);
  if (chain.length === 0) {
    throw new ControlError('UNAUTHENTICATED', 'the internal listener needs a certificate of the internal authority', {
      details: { reason: 'no-client-certificate' },
    });
  }
  const { leaf } = verifyChain(chain, { anchors: anchors(), now: now(), purpose: 'internal' });
  if (leaf.role === 'gateway') return;
  throw new ControlError('PERMISSION_DENIED', `role ${leaf.role ?? '(none)'} may not relay for daemons, only gateway may`, {
    details: { reason: 'wrong-role' },
  });
}

function presentedChain(socket: TLSSocket): Uint8Array[] {
  const chain: Uint8Array[] = [];
  let certificate = socket.getPeerX509Certificate();
  while (certificate !== undefined && chain.length < bounds.certificateChainLength) {
    chain.push(new Uint8Array(certificate.raw));
    certificate = certificate.issuerCertificate;
  }
  return chain;
}

/** @throws MALFORMED unless it is 1 to 4 canonical base64 texts */
export function parsePeerChain(header: string | string[] | undefined): Uint8Array[] {
  const malformed = (message: string): ControlError =>
    new ControlError('MALFORMED', `x-bc-peer-chain ${message}`, { details: { reason: 'peer-chain' } });
  if (typeof header !== 'string' || header === '') throw malformed('is missing');
  const parts = header.split(',');
  if (parts.length > bounds.certificateChainLength)
    throw malformed(`holds ${parts.length} certificates, at most ${bounds.certificateChainLength}`);
  return parts.map((part) => {
    const der = Buffer.from(part, 'base64');
    if (der.length === 0 || der.length > bounds.certificate || der.toString('base64') !== part)
      throw malformed('is not base64 of certificates');
    return new Uint8Array(der);
  });
}
