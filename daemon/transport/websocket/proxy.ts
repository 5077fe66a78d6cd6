/** The proxy that the environment names for https (WS-019), and a TCP connection through it. */
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { connect, isIP } from 'node:net';
import { ControlError } from '../../../domain/errors.ts';

export type ProxyEnvironment = Readonly<Partial<Record<'HTTPS_PROXY' | 'https_proxy' | 'NO_PROXY' | 'no_proxy', string | undefined>>>;

/**
 * null: dial directly. NO_PROXY names hosts, with all below them, and optionally a port; `*` is every host.
 *
 * @throws INVALID_CONFIG for what is no http URL
 */
export function proxyFor(target: URL, env: ProxyEnvironment): URL | null {
  const named = env.https_proxy ?? env.HTTPS_PROXY ?? '';
  if (named === '' || isExempt(target, env.no_proxy ?? env.NO_PROXY ?? '')) return null;
  const url = URL.canParse(named) ? new URL(named) : URL.canParse(`http://${named}`) ? new URL(`http://${named}`) : null;
  if (url?.protocol === 'http:' && url.hostname !== '') return url;
  throw new ControlError('INVALID_CONFIG', 'HTTPS_PROXY must be an http URL, such as http://proxy.example.com:3128', {
    details: { reason: 'proxy' },
  });
}

function isExempt({ hostname, port }: URL, list: string): boolean {
  return list
    .split(/[\s,]+/)
    .filter((one) => one !== '')
    .some((one) => {
      const [, name = '', only] = /^(.*?)(?::(\d+))?$/.exec(one.toLowerCase()) ?? [];
      if (only !== undefined && only !== (port || '443')) return false;
      const bare = name.replace(/^\*?\./, '');
      return name === '*' || hostname === bare || (isIP(hostname) === 0 && hostname.endsWith(`.${bare}`));
    });
}

interface Connecting {
  readonly env: ProxyEnvironment;
  readonly signal: AbortSignal;
}

/** A TCP connection to the target, or through its proxy (RFC 9110, 9.3.6). @throws UNAVAILABLE, INVALID_CONFIG */
export function connectTo(target: URL, { env, signal }: Connecting): Promise<Socket> {
  const proxy = proxyFor(target, env);
  return proxy === null ? direct(target, signal) : through(proxy, target, signal);
}

const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, '');

const failed = (where: string, why: string, cause?: unknown): ControlError =>
  new ControlError('UNAVAILABLE', `no connection to ${where}: ${why}`, { details: { reason: 'dial-failed' }, cause });

/** Whoever is above hears its end; an error between two owners is nobody's. */
const unheard = (socket: Socket): Socket => socket.on('error', () => undefined);

function direct(target: URL, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostOf(target), port: Number(target.port || 443), signal });
    socket.on('error', (error) => reject(failed(target.host, signal.aborted ? 'given up' : error.message, error)));
    socket.once('connect', () => resolve(unheard(socket)));
  });
}

function through(proxy: URL, target: URL, signal: AbortSignal): Promise<Socket> {
  const authority = `${target.hostname}:${target.port || 443}`;
  const where = `${authority} through the proxy ${proxy.host}`;
  const login = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return new Promise((resolve, reject) => {
    const asking = request({
      host: hostOf(proxy),
      port: Number(proxy.port || 80),
      method: 'CONNECT',
      path: authority,
      signal,
      agent: false,
      headers: { host: authority, ...(login === ':' ? {} : { 'proxy-authorization': `Basic ${Buffer.from(login).toString('base64')}` }) },
    });
    asking.on('error', (error) => reject(failed(where, signal.aborted ? 'given up' : error.message, error)));
    asking.once('response', (answer) => {
      answer.destroy();
      reject(failed(where, `it answered ${answer.statusCode}`));
    });
    asking.once('connect', (answer, socket, head) => {
      if (answer.statusCode === 200 && head.length === 0) return resolve(unheard(socket));
      socket.destroy();
      reject(failed(where, answer.statusCode === 200 ? 'it spoke before it was asked' : `it answered ${answer.statusCode}`));
    });
    asking.end();
  });
}
