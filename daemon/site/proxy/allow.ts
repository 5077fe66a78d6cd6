/**
 * Where site.httpProxy may go: a list that the owner of the site agent keeps on its machine, which no command can widen. A rule is
 *
 *   https://host[:port][/path/]         one host; with a path, what lies under it alone (it ends in a slash)
 *   https://*.example[:port][/path/]    hosts under a name
 *   https://10.20.0.0/16[:port]         addresses of a network, for URLs that name an address
 *
 * and http:// in place of https:// where the owner says so. Redirects are not followed, so a rule holds for the request that is
 * made and not for one behind it.
 *
 * Threat: a signed command that reaches past the rule through a name that resolves elsewhere (judgeAddress), by `..`, an encoded
 * slash, a user name before the host, or another way to write an address; the WHATWG parser writes each host in one way.
 */
import { BlockList, isIP } from 'node:net';
import { ControlError } from '../../../domain/errors.ts';

export interface AllowRule {
  readonly text: string;
  readonly protocol: 'http:' | 'https:';
  readonly port: string;
  readonly host: { readonly kind: 'exact' | 'under'; readonly name: string } | { readonly kind: 'network'; readonly block: BlockList };
  /** Begins and ends with a slash. */
  readonly path: string;
}

const form = /^(https?):\/\/(\*\.)?([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?:\/(\d{1,3}))?(?::(\d{1,5}))?(\/[A-Za-z0-9._~/-]*)?$/;

type Parsed = { readonly rule: AllowRule; readonly problem: null } | { readonly rule: null; readonly problem: string };

const wrong = (problem: string): Parsed => ({ rule: null, problem });

/** A rule, or what is wrong with the text. */
export function parseAllowRule(text: string): Parsed {
  const [, scheme, star, name = '', bits, port, path = '/'] = form.exec(text) ?? [];
  if (scheme === undefined)
    return wrong('must be https://host[:port][/path/], https://*.name[:port][/path/] or https://network/bits[:port]');
  if (!path.endsWith('/')) return wrong('its path must end with a slash');
  if (/\/\.{0,2}\//.test(path)) return wrong('its path must not hold empty, . or .. parts');
  if (port !== undefined && !isPort(port)) return wrong(`port ${port} is none`);
  const host = hostOf({ name, bits, under: star !== undefined });
  if (typeof host === 'string') return wrong(host);
  const protocol = `${scheme}:` as AllowRule['protocol'];
  return { rule: { text, protocol, port: port ?? defaultPorts[protocol], host, path }, problem: null };
}

const defaultPorts = Object.freeze({ 'http:': '80', 'https:': '443' });
const isPort = (text: string): boolean => Number(text) > 0 && Number(text) < 65_536;
const withoutBrackets = (name: string): string => name.replace(/^\[|\]$/g, '');

function hostOf({ name, bits, under }: { name: string; bits: string | undefined; under: boolean }): AllowRule['host'] | string {
  const family = isIP(withoutBrackets(name));
  if (bits !== undefined) return under ? 'bits belong behind the address of a network' : networkOf(withoutBrackets(name), Number(bits));
  if (under && family !== 0) return 'an address has no names under it';
  // As the URL of a request will have it.
  const asUrl = `http://${name}/`;
  if (!URL.canParse(asUrl)) return `"${name}" is no host`;
  const { hostname } = new URL(asUrl);
  if (family === 0 && isIP(withoutBrackets(hostname)) !== 0) return `"${name}" is no host`;
  return { kind: under ? 'under' : 'exact', name: hostname };
}

function networkOf(address: string, bits: number): AllowRule['host'] | string {
  const family = isIP(address);
  if (family === 0) return 'bits belong behind the address of a network';
  const most = family === 4 ? 32 : 128;
  if (bits > most) return `a network of IPv${family} has at most ${most} bits`;
  const block = new BlockList();
  block.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6');
  return { kind: 'network', block };
}

/**
 * The URL of a request, and the rule that lets it through.
 *
 * @throws INVALID_INPUT when the text is no URL that can be asked for; PERMISSION_DENIED (`not-allowed`) when no rule covers it
 */
export function judgeTarget(text: string, rules: readonly AllowRule[]): { url: URL; rule: AllowRule } {
  const url = parseTarget(text);
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port;
  const rule = rules.find(
    (one) => one.protocol === url.protocol && one.port === port && isHost(one, url.hostname) && url.pathname.startsWith(one.path),
  );
  if (rule !== undefined) return { url, rule };
  const list = rules.length === 0 ? 'nothing is' : `allowed: ${rules.map((one) => one.text).join(', ')}`;
  throw new ControlError(
    'PERMISSION_DENIED',
    `${url.origin}${url.pathname} is not among what this site agent's owner lets be reached (${list})`.slice(0, 1_000),
    {
      details: { reason: 'not-allowed', hint: 'site.proxyAllow in the configuration of the site agent' },
    },
  );
}

const maxUrlLength = 4_096;

function parseTarget(text: string): URL {
  const refuse = (what: string): never => {
    throw new ControlError('INVALID_INPUT', `the URL ${what}`, { details: { reason: 'proxy-url' } });
  };
  if (text.length > maxUrlLength) return refuse(`has ${text.length} characters, at most ${maxUrlLength}`);
  // The parser drops tabs and line ends and takes a backslash for a slash: what is asked for must be what was approved.
  if (/[^\x21-\x7e]|\\/.test(text)) return refuse('holds a space, a backslash or a character outside of ASCII');
  if (!URL.canParse(text)) return refuse('is none');
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return refuse(`is of scheme ${url.protocol}, not http or https`);
  if (url.username !== '' || url.password !== '') return refuse('names a user; a credential goes into a header, by reference');
  if (url.hash !== '') return refuse('has a fragment, which no server sees');
  if (/%(?:2f|5c|2e|00)/i.test(url.pathname)) return refuse('hides a slash, a backslash or a dot in its path');
  return url;
}

function isHost({ host }: AllowRule, hostname: string): boolean {
  const bare = hostname.replace(/^\[|\]$/g, '');
  switch (host.kind) {
    case 'exact':
      return hostname === host.name;
    case 'under':
      return hostname.endsWith(`.${host.name}`);
    case 'network':
      return isIP(bare) !== 0 && host.block.check(bare, isIP(bare) === 4 ? 'ipv4' : 'ipv6');
  }
}

/** This machine itself, its link (where clouds keep their credentials) and what is no single machine. */
const never = new BlockList();
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['224.0.0.0', 3],
] as const)
  never.addSubnet(network, bits, 'ipv4');
for (const [network, bits] of [
  ['::', 127],
  ['fe80::', 10],
  ['ff00::', 8],
  ['fd00:ec2::254', 128],
] as const)
  never.addSubnet(network, bits, 'ipv6');

/**
 * Whether a name may lead to this address. An address that the owner wrote into a rule is meant; a name is somebody else's to point.
 *
 * @throws PERMISSION_DENIED (`address-not-allowed`)
 */
export function judgeAddress(address: string, { host }: AllowRule): void {
  if (host.kind === 'network' || (host.kind === 'exact' && isIP(host.name.replace(/^\[|\]$/g, '')) !== 0)) return;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  const plain = mapped ?? address;
  if (isIP(plain) !== 0 && !never.check(plain, isIP(plain) === 4 ? 'ipv4' : 'ipv6')) return;
  throw new ControlError('PERMISSION_DENIED', `the name leads to ${address}, which is this machine, its link or no single machine`, {
    details: { reason: 'address-not-allowed', hint: 'write the address itself into site.proxyAllow if it is meant' },
  });
}
