/**
 * The packets of DHCP (RFC 2131, RFC 2132) as PXE uses them (PXE 2.1, RFC 4578): what a client asks, read strictly; what a proxy answers,
 * written plainly. Pure.
 *
 * Threat: every host of the provisioning network sends what it likes. A packet that breaks a rule of the format is none; options that are not
 * asked about here are passed over by their length.
 */
import { ControlError } from '../../../domain/errors.ts';
import { normaliseMac } from '../../../domain/metal/identity.ts';

export interface DhcpRequest {
  readonly kind: 'discover' | 'request';
  /** 4 bytes; the answer carries them. */
  readonly transaction: Uint8Array;
  /** Dotted; 0.0.0.0 while the client has none. */
  readonly clientAddress: string;
  /** A relay agent that passed it on; 0.0.0.0 for none. */
  readonly relayAddress: string;
  /** Normal form; never a group address. */
  readonly macAddress: string;
  /** Option 54: whom a request is for. */
  readonly serverId: string | null;
  /** Option 60: PXEClient:Arch:00007:UNDI:003016; empty for none. */
  readonly vendorClass: string;
  /** Option 77: iPXE. */
  readonly userClasses: readonly string[];
  /** Option 93 in the client's order; empty for none. */
  readonly architectures: readonly number[];
  /** Option 97 as it came: a byte of its type and 16 of the UUID; null for none. */
  readonly clientUuid: Uint8Array | null;
}

/** A packet of BOOTP before its options, and what fits a frame. */
const headBytes = 240;
const maxBytes = 1_500;
const cookie = 0x63_82_53_63;
const maxHops = 16;

const option = Object.freeze({
  pad: 0,
  vendorInfo: 43,
  messageType: 53,
  serverId: 54,
  vendorClass: 60,
  bootFile: 67,
  userClass: 77,
  architecture: 93,
  clientUuid: 97,
  end: 255,
});

/** @throws MALFORMED for what is no DHCPDISCOVER or DHCPREQUEST of an Ethernet client */
export function parseDhcp(bytes: Uint8Array): DhcpRequest {
  if (bytes.length < headBytes || bytes.length > maxBytes) throw malformed(`it has ${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes[0] !== 1) throw malformed('it is no request');
  if (bytes[1] !== 1 || bytes[2] !== 6) throw malformed('its hardware is not Ethernet');
  if ((bytes[3] as number) > maxHops) throw malformed(`it came over ${bytes[3]} relays`);
  if (view.getUint32(236) !== cookie) throw malformed('it is BOOTP without options');
  const macAddress = normaliseMac(Buffer.from(bytes.subarray(28, 34)).toString('hex'));
  if (macAddress === null) throw malformed('its hardware address is that of no interface');
  const options = readOptions(bytes.subarray(headBytes));
  return {
    kind: kindOf(fixed(options, option.messageType, [1])),
    transaction: bytes.slice(4, 8),
    clientAddress: dotted(bytes.subarray(12, 16)),
    relayAddress: dotted(bytes.subarray(24, 28)),
    macAddress,
    serverId: addressIn(options, option.serverId),
    vendorClass: textOf(options.get(option.vendorClass)),
    userClasses: userClassesOf(options.get(option.userClass)),
    architectures: architecturesOf(options.get(option.architecture)),
    // Some firmware sends an empty one; RFC 4578 knows one type.
    clientUuid: fixed(options, option.clientUuid, [0, 17]),
  };
}

/** Code → value. The parts of one that comes several times are one (RFC 3396). */
function readOptions(bytes: Uint8Array): ReadonlyMap<number, Uint8Array> {
  const options = new Map<number, Uint8Array>();
  for (let at = 0; at < bytes.length; ) {
    const code = bytes[at] as number;
    if (code === option.end) return options;
    if (code === option.pad) {
      at += 1;
      continue;
    }
    const length = bytes[at + 1];
    if (length === undefined || at + 2 + length > bytes.length) throw malformed(`option ${code} is longer than what is left`);
    const value = bytes.slice(at + 2, at + 2 + length);
    const before = options.get(code);
    options.set(code, before === undefined ? value : Buffer.concat([before, value]));
    at += 2 + length;
  }
  throw malformed('its options have no end');
}

function kindOf(value: Uint8Array | null): DhcpRequest['kind'] {
  const type = value?.[0];
  if (type === 1) return 'discover';
  if (type === 3) return 'request';
  throw malformed(type === undefined ? 'it has no message type' : `message type ${type} is not for a proxy`);
}

function fixed(options: ReadonlyMap<number, Uint8Array>, code: number, lengths: readonly number[]): Uint8Array | null {
  const value = options.get(code);
  if (value === undefined) return null;
  if (!lengths.includes(value.length)) throw malformed(`option ${code} has ${value.length} bytes`);
  return value.length === 0 ? null : value;
}

function addressIn(options: ReadonlyMap<number, Uint8Array>, code: number): string | null {
  const value = fixed(options, code, [4]);
  return value === null ? null : dotted(value);
}

const dotted = (bytes: Uint8Array): string => [...bytes].join('.');

/** Without the zero that some firmware ends texts by. */
function textOf(value: Uint8Array | undefined): string {
  const text = Buffer.from(value ?? [])
    .toString('latin1')
    .replace(/\0+$/, '');
  return /^[\x20-\x7e]*$/.test(text) ? text : '';
}

/** By RFC 3004 a list of lengths and words; iPXE and others write one bare word. */
function userClassesOf(value: Uint8Array | undefined): string[] {
  if (value === undefined) return [];
  const words: string[] = [];
  for (let at = 0; at < value.length; ) {
    const length = value[at] as number;
    if (length === 0 || at + 1 + length > value.length) return [textOf(value)];
    words.push(textOf(value.subarray(at + 1, at + 1 + length)));
    at += 1 + length;
  }
  return words;
}

function architecturesOf(value: Uint8Array | undefined): number[] {
  if (value === undefined) return [];
  if (value.length === 0 || value.length % 2 !== 0) throw malformed(`option ${option.architecture} has ${value.length} bytes`);
  return Array.from({ length: value.length / 2 }, (_, at) => ((value[2 * at] as number) << 8) | (value[2 * at + 1] as number));
}

/** The word by which PXE clients and servers know each other. */
export const pxeClass = 'PXEClient';

/** Of PXE, in option 43: load the file that is named here; ask no other server, by no menu. */
const loadAtOnce = Object.freeze([6, 1, 8, option.end]);

const fileFieldBytes = 128;

/**
 * A proxy's answer: no address of the client's, a file and where it is. Of at least 300 bytes, which old firmware demands.
 *
 * @param server dotted; its TFTP server
 * @param file at most 255 characters
 */
export function encodeProxyAnswer(
  { kind, transaction, clientAddress, macAddress, clientUuid }: DhcpRequest,
  { server, file }: { readonly server: string; readonly file: string },
): Buffer {
  const head = Buffer.alloc(headBytes);
  head.set([2, 1, 6, 0]);
  head.set(transaction, 4);
  // Nobody has an address before it asked for one: the answer goes to all.
  if (clientAddress === noAddress) head.writeUInt16BE(0x80_00, 10);
  head.set(octets(clientAddress), 12);
  head.set(octets(server), 20);
  head.set(Buffer.from(macAddress.replaceAll(':', ''), 'hex'), 28);
  const fits = file.length < fileFieldBytes;
  if (fits) head.write(file, 108, 'latin1');
  head.writeUInt32BE(cookie, 236);
  const options: [number, Uint8Array][] = [
    [option.messageType, Uint8Array.of(kind === 'discover' ? 2 : 5)],
    [option.serverId, octets(server)],
    [option.vendorClass, Buffer.from(pxeClass)],
    [option.vendorInfo, Uint8Array.from(loadAtOnce)],
  ];
  if (clientUuid !== null) options.push([option.clientUuid, clientUuid]);
  if (!fits) options.push([option.bootFile, Buffer.from(file, 'latin1')]);
  const written = options.flatMap(([code, value]) => [Uint8Array.of(code, value.length), value]);
  const packet = Buffer.concat([head, ...written, Uint8Array.of(option.end)]);
  return Buffer.concat([packet, Buffer.alloc(Math.max(0, 300 - packet.length))]);
}

export const noAddress = '0.0.0.0';

const octets = (address: string): Uint8Array => Uint8Array.from(address.split('.'), Number);

const malformed = (why: string): ControlError => new ControlError('MALFORMED', `no packet of PXE: ${why}`, { details: { reason: 'dhcp' } });
