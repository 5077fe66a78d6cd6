/** The packets of TFTP (RFC 1350) and their options (RFC 2347 to 2349): read strictly, written plainly. */
import { ControlError } from '../../../domain/errors.ts';

export type TftpRequest =
  | { readonly kind: 'read'; readonly name: string; readonly mode: string; readonly options: ReadonlyMap<string, string> }
  | { readonly kind: 'write' }
  | { readonly kind: 'ack'; readonly block: number }
  | { readonly kind: 'error'; readonly code: number; readonly message: string };

export const tftpErrors = Object.freeze({ undefined: 0, notFound: 1, accessViolation: 2, illegal: 4, unknownTransfer: 5, option: 8 });

/** A request is one small datagram; what is longer was not written by firmware. */
const maxRequestBytes = 1_024;

/** @throws MALFORMED */
export function parseTftp(bytes: Uint8Array): TftpRequest {
  if (bytes.length < 4 || bytes.length > maxRequestBytes) throw malformed(`it has ${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const opcode = view.getUint16(0);
  switch (opcode) {
    case 1:
      return parseRead(bytes.subarray(2));
    case 2:
      return { kind: 'write' };
    case 4:
      return { kind: 'ack', block: view.getUint16(2) };
    case 5:
      return { kind: 'error', code: view.getUint16(2), message: printable(bytes.subarray(4)) };
    default:
      throw malformed(`operation ${opcode} is not for a server`);
  }
}

function parseRead(bytes: Uint8Array): TftpRequest {
  // Firmware of some makers pads behind the last zero.
  const texts = Buffer.from(bytes).toString('latin1').split('\0');
  if (texts.length < 3) throw malformed('it has no file name and mode');
  const [name = '', mode = '', ...rest] = texts.slice(0, -1);
  if (name === '' || !/^[\x20-\x7e]+$/.test(name)) throw malformed('its file name is none');
  const options = new Map<string, string>();
  for (let at = 0; at + 1 < rest.length; at += 2) {
    const key = (rest[at] ?? '').toLowerCase();
    // RFC 2347: each once.
    if (key !== '' && options.has(key)) throw malformed(`option ${printable(Buffer.from(key, 'latin1'))} stands twice`);
    if (key !== '') options.set(key, rest[at + 1] ?? '');
  }
  return { kind: 'read', name, mode: mode.toLowerCase(), options };
}

export interface Agreed {
  readonly blockBytes: number;
  readonly timeoutMs: number;
  /** What is said of it; empty: no OACK, the first block goes at once. */
  readonly acknowledged: readonly (readonly [string, string])[];
}

/** Fits an Ethernet frame: fragments of firmware's UDP are lost more often than they come. */
export const maxBlockBytes = 1_468;
const plain = Object.freeze({ blockBytes: 512, timeoutMs: 1_000 });

/** What is agreed on; an option that is not known, or has no value of its form, is passed over (RFC 2347). */
export function agree(options: ReadonlyMap<string, string>, sizeBytes: number): Agreed {
  const number = (name: string, min: number): number | null => {
    const text = options.get(name) ?? '';
    return /^\d{1,9}$/.test(text) && Number(text) >= min ? Number(text) : null;
  };
  const blksize = number('blksize', 8);
  const timeout = number('timeout', 1);
  const acknowledged: [string, string][] = [];
  const blockBytes = blksize === null ? plain.blockBytes : Math.min(blksize, maxBlockBytes);
  if (blksize !== null) acknowledged.push(['blksize', String(blockBytes)]);
  const timeoutTaken = timeout !== null && timeout <= 255;
  if (timeoutTaken) acknowledged.push(['timeout', String(timeout)]);
  if (number('tsize', 0) !== null) acknowledged.push(['tsize', String(sizeBytes)]);
  return { blockBytes, timeoutMs: timeoutTaken ? timeout * 1_000 : plain.timeoutMs, acknowledged };
}

const header = (opcode: number, word: number): Buffer => Buffer.from([0, opcode, word >> 8, word & 0xff]);

export const dataPacket = (block: number, content: Uint8Array): Buffer => Buffer.concat([header(3, block), content]);

export const errorPacket = (code: number, message: string): Buffer =>
  Buffer.concat([header(5, code), Buffer.from(`${message.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 200)}\0`, 'latin1')]);

export const optionsPacket = (acknowledged: Agreed['acknowledged']): Buffer =>
  Buffer.concat([Buffer.from([0, 6]), Buffer.from(acknowledged.map(([name, value]) => `${name}\0${value}\0`).join(''), 'latin1')]);

const printable = (bytes: Uint8Array): string =>
  Buffer.from(bytes)
    .toString('latin1')
    .replaceAll(/[^\x20-\x7e]/g, '')
    .slice(0, 200);

const malformed = (why: string): ControlError =>
  new ControlError('MALFORMED', `no packet of TFTP: ${why}`, { details: { reason: 'tftp' } });
