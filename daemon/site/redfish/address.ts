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
  const [, v6, plain, given] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::([0-9]{1,5}))?$/.exec(text.toLowerCase()) ?? [];
  const host = v6 ?? plain ?? '';
  const isV6 = v6 !== undefined;
  const isPlain = insecureHttp.some((address) => address.toLowerCase() === text.toLowerCase());
  const port = Number(given ?? (isPlain ? 80 : 443));
  if (!isHost(host, isV6) || port < 1 || port > 65_535) throw badAddress(text);
  const shown = isV6 ? `[${host}]` : host;
  return { key: `${shown}:${port}`, host, port, origin: `${isPlain ? 'http' : 'https'}://${shown}:${port}` };
}

const isHost = (host: string, isV6: boolean): boolean => (isV6 ? isIP(host) === 6 : isIP(host) === 4 || hostName.test(host));

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
  const [path = ''] = absolute.split('#', 1);
  return staysInside(path) ? path : null;
}

function staysInside(path: string): boolean {
  const [plain = ''] = path.split('?', 1);
  const segments = plain.split('/').map((segment) => segment.replaceAll(/%2e/gi, '.'));
  return segments[1] === 'redfish' && !segments.includes('..') && !segments.includes('.');
}

function sameOrigin(link: string, origin: string): string | null {
  try {
    const url = new URL(link);
    return url.origin === new URL(origin).origin && url.username === '' && url.password === '' ? url.pathname + url.search : null;
  } catch {
    return null;
  }
}
