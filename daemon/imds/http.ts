/**
 * The metadata service over HTTP, for programs inside an instance.
 *
 *   PUT /v1/token             Metadata-Token-Expiry-Seconds: 1 to 21600 → a session token, text
 *   GET /v1/instance          Metadata-Token: <session token> → { instanceId }
 *   GET /v1/identity-token    the same, ?audience=<one that the issuer allows>, by default its own → { token, expiresAt }
 *
 * Who asks is the source address, and nothing that a request says. A request that came through a proxy, or to a host by name, is refused:
 * the first speaks for somebody else, the second is how a browser is led to an address it should not read.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type Code, ControlError, codeOf, errorTable, isControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { isWorkloadError } from '../../domain/workload/errors.ts';
import { isTokenAudience } from '../../pki/workload/index.ts';
import type { AgentLog } from '../agent/log.ts';
import { sendProblem } from '../http-problem.ts';
import { reasonOf } from '../reason.ts';
import type { IssuedToken, TokenOrder } from '../workload/token-client.ts';
import { canonicalAddress } from './address.ts';
import type { InstanceTurns } from './instance-turns.ts';
import type { InstanceRuntime } from './runtime.ts';
import { type Caller, longestSessionSeconds, type SessionTokens } from './session-tokens.ts';

export interface MetadataPorts {
  readonly runtime: InstanceRuntime;
  readonly sessions: SessionTokens;
  readonly turns: InstanceTurns;
  /** Over the session with the gateway. @throws as QuestionClient.ask */
  ask(order: TokenOrder, signal: AbortSignal): Promise<IssuedToken>;
  readonly log: AgentLog;
}

interface Exchange {
  readonly ports: MetadataPorts;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly query: URLSearchParams;
  readonly caller: Caller;
}

interface Route {
  readonly method: string;
  /** Whether it takes a session token. */
  readonly inSession: boolean;
  readonly run: (exchange: Exchange) => Promise<void> | void;
}

const routes: Readonly<Record<string, Route>> = Object.freeze({
  '/v1/token': { method: 'PUT', inSession: false, run: openSession },
  '/v1/instance': { method: 'GET', inSession: true, run: (exchange) => json(exchange, { instanceId: exchange.caller.instanceId }) },
  '/v1/identity-token': { method: 'GET', inSession: true, run: identityToken },
});

/** One instance must not keep the others out. */
const mostConnections = 1_024;
const mostConnectionsPerAddress = 32;

export function createMetadataHttp(ports: MetadataPorts): Server {
  const server = createServer(
    { maxHeaderSize: 8 * 1024, requestTimeout: 10 * second, headersTimeout: 5 * second },
    (request, response) => void answer(ports, request, response),
  );
  server.maxConnections = mostConnections;
  server.timeout = 30 * second;
  server.keepAliveTimeout = 5 * second;
  server.on('connection', limitPerAddress(mostConnectionsPerAddress));
  return server;
}

function limitPerAddress(most: number): (socket: Socket) => void {
  const open = new Map<string, number>();
  return (socket) => {
    const address = socket.remoteAddress ?? '';
    const now = open.get(address) ?? 0;
    if (now >= most) return void socket.destroy();
    open.set(address, now + 1);
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left === 0) open.delete(address);
      else open.set(address, left);
    });
  };
}

async function answer(ports: MetadataPorts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  try {
    await route(ports, request, response);
  } catch (error) {
    refuse(ports, error, response);
  }
}

async function route(ports: MetadataPorts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  const caller = await callerOf(ports, request);
  assertDirect(request);
  const found = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (found === undefined) throw new ControlError('NOT_FOUND', 'the metadata service has no such page', { details: { reason: 'no-page' } });
  if (request.method !== found.method)
    return void response.writeHead(405, { allow: found.method, 'content-length': 0, connection: 'close' }).end();
  if (found.inSession) assertSession(ports, request, caller);
  await found.run({ ports, request, response, query: new URLSearchParams(query), caller });
}

function refuse({ log }: MetadataPorts, error: unknown, response: ServerResponse): void {
  const code = codeOf(error);
  // A guest may ask for what it likes as often as it likes: only what is not its doing is worth a line.
  if (code === 'INTERNAL' || code === 'UNAVAILABLE') log.warn({ err: error }, 'the metadata service could not answer');
  else log.debug({ err: error }, 'a request to the metadata service was refused');
  if (response.headersSent || response.destroyed) return void response.destroy();
  sendProblem(response, error, { server: 'the metadata service', headers: { 'cache-control': 'no-store', ...retryAfter(error, code) } });
}

/** A minute for what is counted by the minute; else a moment. */
function retryAfter(error: unknown, code: Code): Record<string, string> {
  if (!errorTable[code].retryable) return {};
  return { 'retry-after': code === 'RATE_LIMITED' && wordOf(error) !== 'too-many-waiting' ? '60' : '5' };
}

/** WID-040. @throws PERMISSION_DENIED for an address that no running instance holds; UNAVAILABLE when the runtime cannot say */
async function callerOf({ runtime }: MetadataPorts, { socket }: IncomingMessage): Promise<Caller> {
  const address = canonicalAddress(socket.remoteAddress ?? '');
  const found = address === null ? null : await askRuntime(runtime, address);
  if (address !== null && found !== null) return { instanceId: found.instanceId, address };
  throw refused('unknown-address', `no running instance of this machine holds the address ${address ?? '(none)'}`);
}

async function askRuntime(runtime: InstanceRuntime, address: string): ReturnType<InstanceRuntime['findByAddress']> {
  try {
    return await runtime.findByAddress(address);
  } catch (cause) {
    throw new ControlError('UNAVAILABLE', 'the instances of this machine cannot be read', { cause, details: { reason: 'runtime' } });
  }
}

const proxyHeaders = ['x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'forwarded', 'via'];

/** @throws PERMISSION_DENIED */
function assertDirect({ headers }: IncomingMessage): void {
  const proxied = proxyHeaders.find((name) => headers[name] !== undefined);
  if (proxied !== undefined)
    throw refused('proxied', `a request with the header ${proxied} came through a proxy, which the metadata service refuses`);
  const host = /^(?:\[([^\]]+)\]|([^:]+))(?::\d{1,5})?$/.exec(headers.host ?? '');
  if (canonicalAddress(host?.[1] ?? host?.[2] ?? '') === null)
    throw refused('host-name', 'the metadata service is reached by its address, not by a name');
}

const refused = (reason: string, message: string): ControlError => new ControlError('PERMISSION_DENIED', message, { details: { reason } });

/** @throws UNAUTHENTICATED */
function assertSession({ sessions }: MetadataPorts, { headers }: IncomingMessage, caller: Caller): void {
  const token = headers['metadata-token'];
  if (typeof token === 'string' && sessions.isValid(token, caller)) return;
  const what = token === undefined ? 'there is no header Metadata-Token' : 'the session token is over, or not one of this instance';
  throw new ControlError('UNAUTHENTICATED', `${what}: fetch one by PUT /v1/token with Metadata-Token-Expiry-Seconds`, {
    details: { reason: 'session-token' },
  });
}

function openSession({ ports, request, response, caller }: Exchange): void {
  const text = request.headers['metadata-token-expiry-seconds'];
  const ttlSeconds = typeof text === 'string' && /^[1-9]\d{0,4}$/.test(text) ? Number(text) : Number.NaN;
  if (!(ttlSeconds <= longestSessionSeconds)) {
    const message = `the header Metadata-Token-Expiry-Seconds must be a whole number from 1 to ${longestSessionSeconds}`;
    throw new ControlError('INVALID_INPUT', message, { details: { reason: 'expiry-seconds' } });
  }
  const headers = { 'content-type': 'text/plain; charset=utf-8', 'metadata-token-expiry-seconds': String(ttlSeconds) };
  send(response, ports.sessions.issue(caller, ttlSeconds), headers);
}

async function identityToken(exchange: Exchange): Promise<void> {
  const { ports, response, caller, query } = exchange;
  const audience = audienceOf(query);
  const { instanceId } = caller;
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const { token, expiresAt } = await ports.turns.run(instanceId, () => ports.ask({ instanceId, audience }, gone.signal)).catch(told);
  // It may have stopped while the broker was asked, and its address be another's by now.
  const still = await callerOf(ports, exchange.request);
  if (still.instanceId !== instanceId) throw refused('unknown-address', 'the address changed hands while the token was asked for');
  ports.log.info({ instanceId, audience }, 'an instance got its identity token');
  json(exchange, { token, expiresAt: new Date(expiresAt).toISOString() });
}

/** @throws INVALID_INPUT */
function audienceOf(query: URLSearchParams): string {
  const invalid = (message: string): ControlError => new ControlError('INVALID_INPUT', message, { details: { reason: 'query' } });
  const stranger = [...query.keys()].find((name) => name !== 'audience');
  if (stranger !== undefined) throw invalid(`${stranger.slice(0, 64)} is no parameter here: audience is the only one`);
  const named = query.getAll('audience');
  const [audience = ''] = named;
  if (named.length > 1 || !isTokenAudience(audience)) throw invalid('audience must be one text of at most 256 printable characters');
  return audience;
}

const waits = new Set(['no-answer', 'not-connected', 'too-many-waiting', 'too-often', 'cancelled']);

/** The broker's word is the instance's to know; that an answer could not be used is not. @throws always */
function told(error: unknown): never {
  const reason = wordOf(error);
  if (isWorkloadError(reason) || waits.has(reason)) throw error;
  throw new ControlError('UNAVAILABLE', 'no token can be had now', { cause: error, details: { reason: 'unusable-answer' } });
}

const wordOf = (error: unknown): string => (isControlError(error) ? reasonOf(error) : '');

const json = ({ response }: Exchange, value: unknown): void =>
  send(response, `${JSON.stringify(value)}\n`, { 'content-type': 'application/json' });

function send(response: ServerResponse, body: string, headers: Record<string, string>): void {
  const bytes = Buffer.from(body);
  response.writeHead(200, { ...headers, 'content-length': bytes.length, 'cache-control': 'no-store' }).end(bytes);
}
