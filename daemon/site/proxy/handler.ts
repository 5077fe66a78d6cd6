/**
 * site.httpProxy: one HTTP request on a machine's behalf (A-PKI-26). Whether it may be made at all, the quorum decided before this
 * runs: a GET is free, anything else runs under a leaf bound to its exact bytes (DMN-035 to DMN-037). Here: only where the owner
 * of the site agent lets it go, with secrets by reference, within bounds, once.
 *
 * Threat model: a control plane in other hands would use a site agent to reach what only the site reaches. It gets to the hosts of the
 * owner's list, over a connection whose address was judged, without redirects; it learns no cookie and no credential; a secret that a
 * server repeats in its answer is blotted out. A hostile server costs one bounded answer.
 */

import type { lookup as systemLookup } from 'node:dns';
import { type IncomingMessage, type RequestOptions, request as requestHttp } from 'node:http';
import type { Socket } from 'node:net';
import type { Message } from '@bufbuild/protobuf';
import { isNodeId } from '../../../domain/commands/ids.ts';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import { site } from '../../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from '../../kinds/handler.ts';
import { bindingOf, type SecretPort } from '../../secrets/port.ts';
import { type AllowRule, judgeTarget, parseAllowRule } from './allow.ts';
import { dialTarget } from './dial.ts';
import { problemsOfHeaders, resolveHeaders, returnedHeaders } from './headers.ts';

export interface ProxyPorts {
  readonly secrets: SecretPort;
  /** Rules as the owner wrote them (`site.proxyAllow`). */
  readonly allow: readonly string[];
  readonly lookup?: typeof systemLookup;
}

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** RFC 9110: asked twice, they do what they do once. */
const isRead = (method: string): boolean => method === 'GET' || method === 'HEAD';

const bounds = Object.freeze({ timeoutMs: 30 * second, maxTimeoutMs: 110 * second, answerBytes: 256 * 1024, requestBytes: 512 * 1024 });

/** @throws INVALID_CONFIG for a rule that is none */
export function createProxyHandler({ secrets, allow, lookup }: ProxyPorts): KindHandler {
  const rules = allow.map((text) => {
    const { rule, problem } = parseAllowRule(text);
    if (rule === null)
      throw new ControlError('INVALID_CONFIG', `site.proxyAllow: "${text}" ${problem}`, { details: { reason: 'proxy-rule' } });
    return rule;
  });
  const run = async (payload: Message, { commandId, signal }: KindContext): Promise<KindEnd> => {
    const asked = payload as site.SiteHttpProxy;
    const target = parseProxy(asked, rules);
    const { headers, secrets: values } = await resolveHeaders(asked.headers, { secrets, binding: bindingOf(commandId), signal });
    const timeoutMs = asked.timeoutMs === 0 ? bounds.timeoutMs : Math.min(asked.timeoutMs, bounds.maxTimeoutMs);
    const within = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    try {
      const socket = await dialTarget({
        ...target,
        pinSha256: asked.pinSha256,
        signal: within,
        ...(lookup === undefined ? {} : { lookup }),
      });
      const answer = await exchange(socket, { asked, url: target.url, headers, signal: within });
      return succeeded(site.SiteHttpProxyResultSchema, withoutSecrets(answer, values));
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (within.aborted)
        throw new ControlError('UNAVAILABLE', `no whole answer from ${target.url.host} within ${timeoutMs / 1000} s`, {
          details: { reason: 'timeout' },
        });
      throw error;
    }
  };
  return {
    run,
    async recover(payload, context) {
      if (isRead((payload as site.SiteHttpProxy).method)) return run(payload, context);
      return {
        kind: 'interrupted',
        message: 'the daemon stopped while it made the request: whether the server got it is not known, and it is not repeated',
      };
    },
  };
}

/** @throws INVALID_INPUT naming everything that is wrong; PERMISSION_DENIED (`not-allowed`) */
export function parseProxy(asked: site.SiteHttpProxy, rules: readonly AllowRule[]): { url: URL; rule: AllowRule } {
  const problems: string[] = [];
  if (!isNodeId(asked.nodeId)) problems.push('node_id is no id of a node');
  if (!methods.includes(asked.method)) problems.push(`method must be one of ${methods.join(', ')}`);
  if (isRead(asked.method) && asked.body.length > 0) problems.push(`a ${asked.method} has no body`);
  if (asked.body.length > bounds.requestBytes) problems.push(`body has ${asked.body.length} bytes, at most ${bounds.requestBytes}`);
  if (!/^(?:[0-9a-f]{64})?$/.test(asked.pinSha256)) problems.push('pin_sha256 must be 64 lower-case hex digits, or empty');
  const isPlain = /^http:/i.test(asked.url);
  if (isPlain && asked.pinSha256 !== '') problems.push('pin_sha256 is of no use without https');
  problems.push(...problemsOfHeaders(asked.headers, { isPlain }));
  if (problems.length > 0)
    throw new ControlError('INVALID_INPUT', `site.httpProxy: ${problems.join('; ')}`, { details: { reason: 'proxy-payload', problems } });
  return judgeTarget(asked.url, rules);
}

interface Answer {
  readonly status: number;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly truncated: boolean;
}

interface ExchangeOptions {
  readonly asked: site.SiteHttpProxy;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** One request, one answer; a redirect is an answer like any other. */
function exchange(socket: Socket, { asked, url, headers, signal }: ExchangeOptions): Promise<Answer> {
  const failed = (cause: Error): ControlError =>
    new ControlError('UNAVAILABLE', `the request to ${url.host} failed: ${(cause as NodeJS.ErrnoException).code ?? cause.message}`, {
      cause,
      details: { reason: 'request-failed' },
    });
  return new Promise<Answer>((resolve, reject) => {
    const options: RequestOptions = {
      method: asked.method,
      host: url.hostname,
      path: url.pathname + url.search,
      headers: {
        ...headers,
        host: url.host,
        connection: 'close',
        ...(asked.body.length > 0 ? { 'content-length': asked.body.length } : {}),
      },
      createConnection: () => socket,
      maxHeaderSize: 32 * 1024,
      signal,
    };
    const call = requestHttp(options, (response) => {
      readBody(response).then(resolve, (error: Error) => reject(failed(error)));
    });
    call.once('error', (error) => reject(failed(error)));
    // A server that changes the protocol is given up.
    call.once('upgrade', (_response, upgraded) => upgraded.destroy(new Error('the server changed the protocol')));
    call.end(asked.body.length > 0 ? asked.body : undefined);
  }).finally(() => socket.destroy());
}

async function readBody(response: IncomingMessage): Promise<Answer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  let truncated = false;
  for await (const piece of response) {
    pieces.push(piece as Buffer);
    bytes += (piece as Buffer).length;
    truncated = bytes > bounds.answerBytes;
    if (truncated) break;
  }
  const body = Buffer.concat(pieces).subarray(0, bounds.answerBytes);
  return { status: response.statusCode ?? 0, rawHeaders: response.rawHeaders, body, truncated };
}

/** A server that sends back what it was sent would put a secret into the control plane's tables. */
function withoutSecrets({ status, rawHeaders, body, truncated }: Answer, secrets: readonly string[]) {
  const hide = (text: string): string => secrets.reduce((hidden, secret) => hidden.replaceAll(secret, '***'), text);
  const returned = returnedHeaders(rawHeaders, hide);
  const holdsOne = secrets.some((secret) => body.includes(Buffer.from(secret, 'latin1')));
  return {
    status,
    headers: returned.headers.map(({ name, value }) => ({ name, value, valueRef: '' })),
    body: holdsOne ? Buffer.from(hide(body.toString('latin1')), 'latin1') : body,
    truncated: truncated || returned.truncated,
  };
}
