/** PEM, strictly: whole blocks of one label, canonical base64, nothing between them but line ends. */
import { malformed } from './malformed.ts';

const maxPemCharacters = 1_048_576;

/** One block of 64-character lines. */
export const encodePem = (label: string, der: Uint8Array): string =>
  `-----BEGIN ${label}-----\n${(
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? []
  ).join('\n')}\n-----END ${label}-----\n`;

const blockPattern = /-----BEGIN ([A-Z0-9 ]+)-----\r?\n([A-Za-z0-9+/=\r\n]+?)\r?\n-----END \1-----(?:\r?\n|$)/y;

/** The blocks of a text, which must all carry the label; MALFORMED for other text, other labels, loose base64, or none. */
export const parsePem = (label: string, text: string): Uint8Array[] => {
  if (text.length > maxPemCharacters) throw malformed('too-large', `a PEM text has at most ${maxPemCharacters} characters`);
  const rest = text.trimStart();
  const blocks: Uint8Array[] = [];
  blockPattern.lastIndex = 0;
  for (let at = 0; at < rest.trimEnd().length; at = blockPattern.lastIndex) {
    blockPattern.lastIndex = at;
    const match = blockPattern.exec(rest);
    if (match?.[1] !== label) throw malformed('pem', `a PEM text holds something else than ${label} blocks`);
    const base64 = (match[2] as string).replace(/\r?\n/g, '');
    const der = Buffer.from(base64, 'base64');
    if (der.toString('base64') !== base64) throw malformed('pem', 'the base64 of a PEM block is not canonical');
    blocks.push(der);
  }
  if (blocks.length === 0) throw malformed('pem', `a PEM text holds no ${label} block`);
  return blocks;
};

/** The certificates of a PEM text in their order, as DER. They are not parsed yet. */
export const parsePemCertificates = (text: string): Uint8Array[] => parsePem('CERTIFICATE', text);
