/** Where a management controller is, and which links of its answers are its own. */
import { isIP } from 'node:net';
import { ControlError } from '../../../domain/errors.ts';

export interface BmcAddress {
  /** One spelling of it: what locks, counters and messages go by. */
  readonly key: string;
  readonly host: string;
  readonly port: number;
  /** https://host:port, or http:// for the emulators of a test bench. */
  readonly origin: string;
}

const hostName = /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/;

/**
 * host, host:port, [v6] or [v6]:port; nothing else, so that an address of a command is never a path, an account or another scheme.
 *
 * @param insecureHttp addresses that are spoken to without TLS
 * @throws INVALID_INPUT (bmc-address)
 */
export function parseBmcAddress(text: string, insecureHttp: readonly string[] = []): BmcAddress {
  const parsed = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::([0-9]{1,5}))?$/.exec(text.toLowerCase());
  const host = parsed?.[1] ?? parsed?.[2] ?? '';
  const isV6 = parsed?.[1] !== undefined && isIP(host) === 6;
  if (!isV6 && isIP(host) !== 4 && !hostName.test(host)) throw badAddress(text);
  const isPlain = insecureHttp.some((address) => address.toLowerCase() === text.toLowerCase());
  const port = Number(parsed?.[3] ?? (isPlain ? 80 : 443));
  if (port < 1 || port > 65_535) throw badAddress(text);
  const shown = isV6 ? `[${host}]` : host;
  return { key: `${shown}:${port}`, host, port, origin: `${isPlain ? 'http' : 'https'}://${shown}:${port}` };
}

const badAddress = (text: string): ControlError =>
  new ControlError(
    'INVALID_INPUT',
    `"${text.slice(0, 80)}" is not the address of a controller: host or host:port, such as bmc-7.rack2:443`,
    {
      details: { reason: 'bmc-address' },
    },
  );

/**
 * The path of a link in an answer, or null for one that leads elsewhere: to another host, out of /redfish, or up. A controller that
 * could send us anywhere would have a door into the management network, with our credential in hand.
 */
export function ownPath(link: unknown, { origin }: BmcAddress): string | null {
  if (typeof link !== 'string' || link.length > 2048 || !/^[\x21-\x7e]+$/.test(link)) return null;
  const absolute = link.startsWith('/') ? link : sameOrigin(link, origin);
  // A second slash would name a host; a backslash is one to some parsers.
  if (absolute === null || absolute.startsWith('//') || absolute.includes('\\')) return null;
  const path = absolute.split('#', 1)[0] ?? '';
  const segments = (path.split('?', 1)[0] ?? '').split('/').map((segment) => segment.replaceAll(/%2e/gi, '.'));
  if (segments[1] !== 'redfish' || segments.includes('..') || segments.includes('.')) return null;
  return path;
}

function sameOrigin(link: string, origin: string): string | null {
  try {
    const url = new URL(link);
    return url.origin === new URL(origin).origin && url.username === '' && url.password === '' ? url.pathname + url.search : null;
  } catch {
    return null;
  }
}
