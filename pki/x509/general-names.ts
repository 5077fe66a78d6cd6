/**
 * The three kinds of alternative name in use: URI, DNS name, IP address. Texts are checked, not repaired, in both directions:
 * a URI is printable ASCII, a DNS name has letter-digit-hyphen labels and no wildcard, an address has 4 or 16 bytes.
 */
import { ControlError } from '../../domain/errors.ts';
import { type DerReader, tags } from './der-reader.ts';
import { encodeDer, encodeDerLatin1 } from './der-writer.ts';
import { malformed } from './malformed.ts';

export const uriTag = tags.context(6);
const dnsTag = tags.context(2);
const ipTag = tags.context(7);

const maxUriBytes = 2_048;
const uriPattern = /^[a-z][a-z0-9+.-]*:[\x21-\x7e]+$/i;
const labelPattern = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/i;

/** At most 253 characters of dot-separated labels, the last one not all digits; no wildcard, no trailing dot. */
export const isDnsName = (text: string): boolean => {
  const labels = text.split('.');
  return text.length <= 253 && labels.every((label) => labelPattern.test(label)) && !/^[0-9]+$/.test(labels.at(-1) as string);
};

export const isUri = (text: string): boolean => text.length <= maxUriBytes && uriPattern.test(text);

const ipv4Pattern = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

/** RFC 5952 text of an IPv6 address in any form; null when it is none (or has a zone). The URL parser knows the grammar. */
const canonicalIpv6 = (text: string): string | null =>
  /^[0-9a-f:.]+$/i.test(text) && URL.canParse(`http://[${text}]`) ? new URL(`http://[${text}]`).hostname.slice(1, -1) : null;

const wordsOf = (part: string): number[] => (part === '' ? [] : part.split(':').map((word) => Number.parseInt(word, 16)));

/** The 4 or 16 octets of an address; null when the text is none. */
export const ipOctets = (text: string): Uint8Array | null => {
  if (ipv4Pattern.test(text)) return Uint8Array.from(text.split('.').map(Number));
  const canonical = canonicalIpv6(text);
  if (canonical === null) return null;
  const [before, after = []] = canonical.split('::').map(wordsOf) as [number[], number[]?];
  const words = [...before, ...Array.from({ length: 8 - before.length - after.length }, () => 0), ...after];
  return Uint8Array.from(words.flatMap((word) => [word >> 8, word & 0xff]));
};

/** Dotted decimal, or IPv6 as RFC 5952 writes it. */
export const ipText = (octets: Uint8Array): string => {
  if (octets.length === 4) return octets.join('.');
  const words = Array.from({ length: 8 }, (_, i) => (((octets[2 * i] as number) << 8) | (octets[2 * i + 1] as number)).toString(16));
  return canonicalIpv6(words.join(':')) as string;
};

export interface AlternativeNames {
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
  readonly ipSans: readonly string[];
}

const refuse = (kind: string, text: string): never => {
  throw new ControlError('INVALID_INPUT', `not ${kind}: ${JSON.stringify(text)}`, { details: { reason: 'alternative-name' } });
};

/** The content of a GeneralNames sequence: URIs first, in order. INVALID_INPUT for a text that is not of its kind. */
export const encodeGeneralNames = ({ uriSans, dnsSans, ipSans }: AlternativeNames): Uint8Array[] => [
  ...uriSans.map((uri) => (isUri(uri) ? encodeDerLatin1(uriTag, uri) : refuse('a URI', uri))),
  ...dnsSans.map((name) => (isDnsName(name) ? encodeDerLatin1(dnsTag, name) : refuse('a DNS name', name))),
  ...ipSans.map((ip) => encodeDer(ipTag, ipOctets(ip) ?? refuse('an IP address', ip))),
];

/** Reads a GeneralNames value whole; MALFORMED for an empty one, another kind of name, and texts that are not of their kind. */
export const readGeneralNames = (value: DerReader): AlternativeNames => {
  const inner = value.open(tags.sequence);
  value.close();
  if (inner.isAtEnd) throw malformed('alternative-name', 'the alternative names are empty');
  const uriSans: string[] = [];
  const dnsSans: string[] = [];
  const ipSans: string[] = [];
  while (!inner.isAtEnd) {
    const tag = inner.peek();
    if (tag === uriTag) uriSans.push(asText(inner.readText(tag, 'latin1'), isUri, 'a URI'));
    else if (tag === dnsTag) dnsSans.push(asText(inner.readText(tag, 'latin1'), isDnsName, 'a DNS name'));
    else if (tag === ipTag) ipSans.push(ipText(addressOctets(inner.read(tag))));
    else throw malformed('alternative-name', `an alternative name of kind 0x${tag.toString(16)} is not taken`);
  }
  return { uriSans, dnsSans, ipSans };
};

const asText = (text: string, isValid: (text: string) => boolean, kind: string): string => {
  if (!isValid(text)) throw malformed('alternative-name', `an alternative name is not ${kind}`);
  return text;
};

const addressOctets = (content: Uint8Array): Uint8Array => {
  if (content.length !== 4 && content.length !== 16)
    throw malformed('alternative-name', `an IP address has 4 or 16 bytes, not ${content.length}`);
  return content;
};
