/**
 * The boot server over HTTP. Plain HTTP, for iPXE as Debian builds it has no TLS: what counts is proven otherwise. The ramdisk believes
 * pins, not this server's word; artefacts are served under the checksum of a signed command; an assertion is signed.
 *
 *   GET /ipxe/<mac>                  the script of this machine
 *   GET /boot.ipxe                   a script that asks for the one of its own address
 *   GET /uefi/<mac>/boot.efi         the script to iPXE, the loader to firmware that boots over HTTP; /boot.efi likewise
 *   GET /artefacts/<name>[?sha256=]  a file, under a checksum that an entry, the question or <name>.sha256 vouches for
 *   POST /v1/assert                  the assertion for a ramdisk's key
 *
 * Threat: every host of the provisioning network may send anything, as much as it likes. Heads, bodies, times and connections are
 * bounded; a request reads files of one folder and changes nothing but what /v1/assert notes.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { ControlError, codeOf } from '../../../domain/errors.ts';
import { normaliseMac } from '../../../domain/metal/identity.ts';
import { minute, second } from '../../../domain/time.ts';
import { sendProblem } from '../../http-problem.ts';
import type { ArtefactFolder } from './artefacts.ts';
import { assertionType, assertPath, assertRequestMaxBytes, parseAssertRequest } from './assert-request.ts';
import { deliver } from './deliver.ts';
import type { BootDesk } from './desk.ts';
import type { BootPorts } from './ports.ts';
import { firstScript } from './script.ts';

interface Exchange {
  readonly ports: BootPorts;
  readonly desk: BootDesk;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** What the route's form caught. */
  readonly words: readonly string[];
  readonly query: URLSearchParams;
}

interface Route {
  readonly path: RegExp;
  readonly methods: readonly string[];
  readonly run: (exchange: Exchange) => Promise<void>;
}

const reading = ['GET', 'HEAD'];

const routes: readonly Route[] = [
  { path: /^\/ipxe\/([^/]{1,40}?)(?:\.ipxe)?$/, methods: reading, run: machineScript },
  { path: /^\/boot\.ipxe$/, methods: reading, run: async (exchange) => text(exchange, firstScript(exchange.ports.baseUrl())) },
  { path: /^\/uefi\/([^/]{1,40})\/boot\.efi$/, methods: reading, run: loaderOrScript },
  { path: /^\/boot(-arm64)?\.efi$/, methods: reading, run: loaderOrFirstScript },
  { path: /^\/artefacts\/([^/]{1,128})$/, methods: reading, run: artefact },
  { path: new RegExp(`^${assertPath}$`), methods: ['POST'], run: assertKey },
  { path: /^\/healthz$/, methods: reading, run: async (exchange) => text(exchange, 'ok\n') },
];

/** A machine that stopped reading keeps a file open. */
const silentMs = minute;
const hashWithinMs = 15 * minute;

export function createBootHttp(ports: BootPorts, desk: BootDesk): Server {
  const server = createServer(
    { maxHeaderSize: 8 * 1024, requestTimeout: 20 * second, headersTimeout: 10 * second },
    (request, response) => {
      void answer({ ports, desk, request, response }).catch((error: unknown) => {
        // The machine hung up, or its file was cut off; a head that is out cannot be taken back.
        ports.log.debug({ err: error, url: request.url }, 'a request to the boot server did not end well');
        response.destroy();
      });
    },
  );
  server.maxConnections = 1_024;
  server.timeout = silentMs;
  server.keepAliveTimeout = 10 * second;
  return server;
}

async function answer(exchange: Omit<Exchange, 'words' | 'query'>): Promise<void> {
  const { request, response, ports } = exchange;
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  try {
    const route = routes.find((one) => one.path.test(path));
    if (route === undefined) throw new ControlError('NOT_FOUND', 'the boot server has no such page', { details: { reason: 'no-page' } });
    if (!route.methods.includes(request.method ?? ''))
      return void response.writeHead(405, { allow: route.methods.join(', '), 'content-length': 0 }).end();
    const [, ...words] = route.path.exec(path) ?? [];
    await route.run({ ...exchange, words: words.map((word) => word ?? ''), query: new URLSearchParams(query) });
  } catch (error) {
    if (response.headersSent) throw error;
    if (codeOf(error) === 'INTERNAL') ports.log.error({ err: error, path }, 'the boot server failed');
    sendProblem(response, error, { server: 'the boot server' });
  }
}

function send({ request, response }: Exchange, body: Uint8Array | string, type: string): void {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  response.writeHead(200, { 'content-type': type, 'content-length': bytes.length, 'cache-control': 'no-store' });
  response.end(request.method === 'HEAD' ? undefined : bytes);
}

const text = (exchange: Exchange, body: string): void => send(exchange, body, 'text/plain; charset=utf-8');

function macOf({ words: [word = ''] }: Exchange): string {
  const mac = normaliseMac(word.replaceAll(/%3a/gi, ':'));
  if (mac !== null) return mac;
  throw new ControlError('INVALID_INPUT', 'the path names no MAC address of an interface', { details: { reason: 'mac' } });
}

async function machineScript(exchange: Exchange): Promise<void> {
  const macAddress = macOf(exchange);
  // A look at the head is no boot: nothing is noted of it, and no token is asked for.
  if (exchange.request.method === 'HEAD')
    return void exchange.response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' }).end();
  text(exchange, await exchange.desk.script(macAddress));
}

/** Firmware says UefiHttpBoot/1.0. To iPXE, which it has just loaded from here, the loader once more would be a loop. */
const isIpxe = ({ request }: Exchange): boolean => /^iPXE\//i.test(request.headers['user-agent'] ?? '');

async function loaderOrScript(exchange: Exchange): Promise<void> {
  const macAddress = macOf(exchange);
  return isIpxe(exchange) ? text(exchange, await exchange.desk.script(macAddress)) : loader(exchange, 'efiX64');
}

async function loaderOrFirstScript(exchange: Exchange): Promise<void> {
  if (isIpxe(exchange)) return text(exchange, firstScript(exchange.ports.baseUrl()));
  return loader(exchange, exchange.words[0] === '' ? 'efiX64' : 'efiArm64');
}

export const loaderMaxBytes = 16 * 1024 * 1024;

async function loader(exchange: Exchange, which: 'efiX64' | 'efiArm64'): Promise<void> {
  const name = exchange.ports.config.loaders[which];
  if (name === undefined)
    throw new ControlError('NOT_FOUND', `the boot server has no loader ${which}`, { details: { reason: 'no-loader' } });
  send(exchange, await exchange.ports.artefacts.read(name, loaderMaxBytes), 'application/efi');
}

async function artefact(exchange: Exchange): Promise<void> {
  const { ports, desk, request, response, query, words } = exchange;
  const [word = ''] = words;
  const asked = query.get('sha256');
  const wantsChecksum = word.endsWith('.sha256');
  const name = wantsChecksum ? word.slice(0, -'.sha256'.length) : word;
  // Who names the checksum will see whether the file has it; who names none gets what somebody else vouches for.
  const vouched = asked === null ? [...desk.vouchedFor(name), ...(await besideIt(ports.artefacts, name))] : [asked];
  // The checksum of a large image takes longer than anybody may be silent otherwise.
  request.socket.setTimeout(hashWithinMs);
  const opened = await ports.artefacts.open(name, vouched).catch((error: unknown) => {
    if (codeOf(error) === 'CONFLICT') ports.log.error({ err: error, name }, 'an artefact is not what it is to be, and is not handed out');
    throw error;
  });
  request.socket.setTimeout(silentMs);
  if (!wantsChecksum) return deliver(opened, request, response);
  await opened.file.close();
  text(exchange, `${opened.sha256}  ${name}\n`);
}

/** What sha256sum wrote into `<name>.sha256`, for images that no boot entry names. */
async function besideIt(artefacts: ArtefactFolder, name: string): Promise<string[]> {
  try {
    const content = (await artefacts.read(`${name}.sha256`, 1_024)).toString('latin1');
    return /^[0-9a-f]{64}(?=\s|$)/.exec(content) ?? [];
  } catch {
    return [];
  }
}

async function assertKey(exchange: Exchange): Promise<void> {
  const asked = parseAssertRequest(await bodyOf(exchange.request));
  send(exchange, await exchange.desk.assert(asked), assertionType);
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  // Said before it is read, or the one who asks sees a connection that was cut.
  if (Number(request.headers['content-length'] ?? 0) > assertRequestMaxBytes) throw tooLarge;
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request) {
    bytes += (piece as Buffer).length;
    if (bytes > assertRequestMaxBytes) throw tooLarge;
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces);
}

const tooLarge = new ControlError('FRAME_TOO_LARGE', `a request for an assertion has at most ${assertRequestMaxBytes} bytes`, {
  details: { reason: 'request-size' },
});
