/** A proxy that takes TLS apart, as on the networks that the WebSocket is for: its own certificate to the daemon, no client certificate to the gateway. */

import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls, createServer, type Server } from 'node:tls';
import { createSerial, encodePem, issueCa, issueLeaf, signerFromPrivateKey, spkiOf } from '../../pki/x509/index.ts';

export interface TlsProxy {
  readonly port: number;
  /** PEM of its authority. */
  readonly ca: string;
  /** What it would prove itself with: DER, leaf first. */
  readonly chain: readonly Uint8Array[];
  readonly privateKey: KeyObject;
  /** Everything that daemons sent through it, in the clear. */
  readonly seen: Buffer[];
  stop(): Promise<void>;
}

export interface TlsProxyOptions {
  /** Of the gateway's WebSocket listener. */
  readonly to: number;
  /** Changes what the gateway says; `asked` is what the daemon said before it. */
  readonly change?: (chunk: Buffer, asked: Buffer) => Buffer | Promise<Buffer>;
}

async function authority(now: number) {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const signer = signerFromPrivateKey(key.privateKey);
  const root = await issueCa({ profile: 'rootCa', trustDomain: 'proxy.example', spki: signer.spki, issuer: { self: signer }, now });
  const serving = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const issuer = { certificate: root.der, signer };
  const ca = await issueCa({ profile: 'servingCa', trustDomain: 'proxy.example', spki: spkiOf(serving.publicKey), issuer, now });
  const leafKey = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leaf = await issueLeaf({
    ca: { certificate: ca.der, signer: signerFromPrivateKey(serving.privateKey) },
    profile: 'gateway',
    spki: spkiOf(leafKey.publicKey),
    sans: { dns: ['localhost'], ips: ['127.0.0.1'] },
    serial: createSerial(),
    now,
  });
  return {
    ca: encodePem('CERTIFICATE', root.der),
    key: String(leafKey.privateKey.export({ type: 'pkcs8', format: 'pem' })),
    chain: [leaf.der, ca.der],
    privateKey: leafKey.privateKey,
    cert: [leaf.der, ca.der].map((der) => encodePem('CERTIFICATE', der)).join(''),
  };
}

export async function startTlsProxy({ to, change = (chunk) => chunk }: TlsProxyOptions): Promise<TlsProxy> {
  const { ca, key, cert, chain, privateKey } = await authority(Date.now());
  const sockets = new Set<Socket>();
  const seen: Buffer[] = [];
  const server: Server = createServer({ key, cert, ALPNProtocols: ['http/1.1'] }, (inner) => {
    const outer = connectTls({ port: to, host: '127.0.0.1', ALPNProtocols: ['http/1.1'], rejectUnauthorized: false });
    for (const [from, target] of [
      [inner, outer],
      [outer, inner],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        target.destroy();
      });
    }
    inner.on('data', (chunk: Buffer) => {
      seen.push(chunk);
      outer.write(chunk);
    });
    let asked = Buffer.alloc(0);
    inner.on('data', (chunk: Buffer) => (asked = Buffer.concat([asked, chunk])));
    let turn: Promise<unknown> = Promise.resolve();
    outer.on('data', (chunk: Buffer) => {
      turn = turn.then(async () => inner.write(await change(chunk, asked)));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    ca,
    chain,
    privateKey,
    seen,
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

export interface ConnectProxy {
  readonly url: string;
  readonly asked: string[];
  stop(): Promise<void>;
}

/** Takes CONNECT, and leaves what goes through it alone. @param status answered in place of 200 */
export async function startConnectProxy({ status = 200, login }: { status?: number; login?: string } = {}): Promise<ConnectProxy> {
  const asked: string[] = [];
  const sockets = new Set<Socket>();
  const server = createHttpServer();
  server.on('connect', (request: IncomingMessage, inner: Socket) => {
    asked.push(request.url ?? '');
    sockets.add(inner);
    inner.on('error', () => undefined);
    const wanted = login === undefined ? undefined : `Basic ${Buffer.from(login).toString('base64')}`;
    if (status !== 200 || (wanted !== undefined && request.headers['proxy-authorization'] !== wanted))
      return void inner.end(`HTTP/1.1 ${status === 200 ? 407 : status} No\r\ncontent-length: 0\r\n\r\n`);
    const [host = '', port] = (request.url ?? '').split(':');
    const outer = connectTcp({ host, port: Number(port) }, () => {
      inner.write('HTTP/1.1 200 Connection established\r\n\r\n');
      inner.pipe(outer).pipe(inner);
    });
    outer.on('error', () => inner.destroy());
    outer.on('close', () => inner.destroy());
    inner.on('close', () => outer.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://${login === undefined ? '' : `${login}@`}127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
