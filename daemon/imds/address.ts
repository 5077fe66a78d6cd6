/** Addresses, in one spelling: who asks is told by it alone. */
import { isIP, isIPv4, isIPv6 } from 'node:net';

/** null for what is no address; one with a zone is none, for it means another machine on every link. */
export function canonicalAddress(text: string): string | null {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(text)?.[1];
  if (mapped !== undefined) return isIPv4(mapped) ? mapped : null;
  if (isIPv4(text)) return text;
  if (!isIPv6(text) || text.includes('%')) return null;
  return new URL(`http://[${text}]`).hostname.slice(1, -1);
}

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

export const listenAddressForm = 'an address of this machine and a port, like 169.254.169.254:80 or [fd00:ec2::254]:80, not every address';

/** null unless it has that form. */
export function parseListenAddress(text: string): ListenAddress | null {
  const [, bracketed, plain, digits = ''] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = canonicalAddress(bracketed ?? plain ?? '');
  const port = Number(digits);
  if (host === null || isIP(host) !== (bracketed === undefined ? 4 : 6) || port > 65_535) return null;
  // On every address it would also answer networks that hold no instance.
  return host === '0.0.0.0' || host === '::' ? null : { host, port };
}
