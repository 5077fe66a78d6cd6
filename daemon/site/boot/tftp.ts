/**
 * The boot server over TFTP, read-only: the loaders that the owner's configuration names, for firmware that speaks nothing else. Each
 * transfer has a port of its own (RFC 1350), to the address that asked and no other.
 *
 * Threat: anybody can ask in another's name, and UDP answers to whom it names. So an answer is one packet of a frame's size at a
 * time, repeated a few times; transfers are bounded, in all and for each address; what is read is small and in memory.
 */
import type { RemoteInfo, Socket } from 'node:dgram';
import { ControlError, codeOf } from '../../../domain/errors.ts';
import { loaderMaxBytes } from './http.ts';
import type { BootPorts } from './ports.ts';
import { type Agreed, agree, dataPacket, errorPacket, optionsPacket, parseTftp, type TftpRequest, tftpErrors } from './tftp-packets.ts';
import { boundUdp, type UdpPlace } from './udp.ts';

const most = Object.freeze({ transfers: 128, ofOneAddress: 8, repeats: 5 });
/** Block numbers have 16 bits; clients do not agree on what comes after the last. */
const maxBlocks = 65_535;

interface Transfer {
  readonly address: string;
  /** null while its file is read. */
  socket: Socket | null;
}

export interface TftpServer {
  /** bootTftp: host:port */
  readonly addresses: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

/** @throws PORT_TAKEN */
export async function listenTftp(ports: BootPorts, port: number): Promise<TftpServer> {
  const { listen } = ports.config;
  const socket = await boundUdp(placeOf(listen, port));
  const transfers = new Set<Transfer>();
  socket.on('message', (bytes, from) => {
    const request = readRequest(bytes);
    if (request === null) return;
    if (request.kind !== 'read') return reply(socket, from, errorPacket(tftpErrors.accessViolation, 'this server only hands out'));
    const ofOne = [...transfers].filter(({ address }) => address === from.address).length;
    // Nothing is said: an answer to each of a flood would be a flood.
    if (transfers.size >= most.transfers || ofOne >= most.ofOneAddress) return;
    // Counted from here on: its file is yet to be read.
    const one: Transfer = { address: from.address, socket: null };
    transfers.add(one);
    serve(ports, { request, from, listen })
      .then((own) => {
        one.socket = own;
        own.once('close', () => transfers.delete(one));
      })
      .catch((err: unknown) => {
        transfers.delete(one);
        ports.log.warn({ err, file: request.name, address: from.address }, 'a file was not handed out over TFTP');
        reply(socket, from, errorOf(err));
      });
  });
  socket.on('error', (err) => ports.log.error({ err }, 'the TFTP server failed'));
  const at = socket.address();
  return {
    addresses: { bootTftp: `${at.address}:${at.port}` },
    async close() {
      for (const { socket: own } of transfers) own?.close();
      await new Promise<void>((resolve) => socket.close(() => resolve()));
    },
  };
}

/** null for what is no first packet of anything. */
function readRequest(bytes: Uint8Array): (TftpRequest & { kind: 'read' | 'write' }) | null {
  try {
    const request = parseTftp(bytes);
    return request.kind === 'read' || request.kind === 'write' ? request : null;
  } catch {
    return null;
  }
}

const placeOf = (host: string, port: number): UdpPlace => ({ host, port, who: 'the TFTP server', setBy: 'site.boot.tftpPort' });

const reply = (socket: Socket, to: RemoteInfo, packet: Buffer): void => socket.send(packet, to.port, to.address, () => undefined);

interface Asked {
  readonly request: TftpRequest & { kind: 'read' };
  readonly from: RemoteInfo;
  readonly listen: string;
}

async function serve(ports: BootPorts, { request, from, listen }: Asked): Promise<Socket> {
  const content = await contentOf(ports, request);
  const agreed = agree(request.options, content.length);
  if (Math.floor(content.length / agreed.blockBytes) + 1 > maxBlocks)
    throw new ControlError('UNSUPPORTED', 'the file has too many blocks: ask with a larger blksize, or over HTTP', {
      details: { reason: 'tftp-size' },
    });
  const socket = await boundUdp(placeOf(listen, 0));
  socket.on('error', (err) => ports.log.debug({ err }, 'a transfer over TFTP failed'));
  transfer(socket, { from, content, agreed });
  return socket;
}

/** The name as firmware writes it: some put a slash before it. */
async function contentOf({ config, artefacts }: BootPorts, { name, mode }: TftpRequest & { kind: 'read' }): Promise<Buffer> {
  if (mode !== 'octet') throw new ControlError('UNSUPPORTED', 'only mode octet is served', { details: { reason: 'tftp-mode' } });
  const file = name.replace(/^\.?\/+/, '');
  if (!Object.values(config.loaders).includes(file))
    throw new ControlError('NOT_FOUND', 'no such loader', { details: { reason: 'no-loader' } });
  return artefacts.read(file, loaderMaxBytes);
}

function errorOf(error: unknown): Buffer {
  const code = codeOf(error);
  if (code === 'NOT_FOUND') return errorPacket(tftpErrors.notFound, 'no such file');
  if (code === 'UNSUPPORTED') return errorPacket(tftpErrors.illegal, (error as Error).message);
  return errorPacket(tftpErrors.undefined, 'the file cannot be read');
}

/** One packet out, one acknowledgement in; a second acknowledgement of one packet repeats nothing. */
function transfer(socket: Socket, { from, content, agreed }: { from: RemoteInfo; content: Buffer; agreed: Agreed }): void {
  const last = Math.floor(content.length / agreed.blockBytes) + 1;
  let block = agreed.acknowledged.length > 0 ? 0 : 1;
  let tries = 0;
  let timer: NodeJS.Timeout | undefined;
  const packet = (): Buffer =>
    block === 0
      ? optionsPacket(agreed.acknowledged)
      : dataPacket(block, content.subarray((block - 1) * agreed.blockBytes, block * agreed.blockBytes));
  const send = (): void => {
    clearTimeout(timer);
    if (tries > most.repeats) return void socket.close();
    tries += 1;
    reply(socket, from, packet());
    timer = setTimeout(send, agreed.timeoutMs);
  };
  socket.once('close', () => clearTimeout(timer));
  socket.on('message', (bytes, sender) => {
    // RFC 1350: another port is told so, and the transfer goes on.
    if (sender.port !== from.port || sender.address !== from.address)
      return reply(socket, sender, errorPacket(tftpErrors.unknownTransfer, 'no transfer of yours'));
    const said = readAnswer(bytes);
    if (said === 'end') return void socket.close();
    if (said !== block) return;
    if (block === last) return void socket.close();
    block += 1;
    tries = 0;
    send();
  });
  send();
}

function readAnswer(bytes: Uint8Array): number | 'end' | null {
  try {
    const answer = parseTftp(bytes);
    return answer.kind === 'ack' ? answer.block : answer.kind === 'error' ? 'end' : null;
  } catch {
    return null;
  }
}
