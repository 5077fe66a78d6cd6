/**
 * The WebSocket listener: HTTP/1.1 over TLS of its own port, beside the daemon listener and with the same key, chain, options and door for
 * handshakes. It asks for no client certificate: whoever needs this listener has a proxy in between that would take it away (WS-033).
 */
import { createPrivateKey, constants as cryptoConstants } from 'node:crypto';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { parsePemCertificates, signerFromPrivateKey } from '../../pki/x509/index.ts';
import { createAdmission, handshakeWithinMs, type ListenerOptions } from '../tls/listener.ts';
import { type CheckedMaterial, checkMaterial, type TlsMaterial } from '../tls/material.ts';
import { attachGatewayWs, type GatewayWs } from './attach.ts';
import type { GatewayWsOptions, ServingIdentity } from './options.ts';
import { gatewayRenewHandler } from './renew.ts';

export interface WsListener extends GatewayWs {
  readonly server: Server;
  readonly address: AddressInfo | null;
  /** @throws INVALID_CONFIG, and changes nothing, when the set does not fit together */
  setTls(material: TlsMaterial): void;
  stopAccepting(): void;
}

/** As the daemon listener bounds its own. */
const caps = Object.freeze({
  maxHeaderSize: 24 * 1024,
  headersTimeout: 10_000,
  requestTimeout: 15_000,
  keepAliveTimeout: 5_000,
  connectionsCheckingInterval: 2_000,
});

/** The serving identity is that of `tls`. */
export type ServeGatewayWsOptions = Omit<GatewayWsOptions, 'serving'> &
  Pick<ListenerOptions, 'tls' | 'tlsOptions' | 'handshakesAtATime'> &
  Parameters<typeof gatewayRenewHandler>[0];

export function serveGatewayWs(options: ServeGatewayWsOptions): WsListener {
  let material = checkMaterial(options.tls, null);
  const fixed = {
    minVersion: 'TLSv1.3',
    ...options.tlsOptions,
    secureOptions: cryptoConstants.SSL_OP_NO_TICKET,
    handshakeTimeout: handshakeWithinMs,
    ALPNProtocols: ['http/1.1'],
  } as const;
  const pem = (): { key: string | Buffer; cert: string | Buffer } => ({ key: material.key, cert: material.cert });
  const https: HttpsServer = createHttpsServer({ ...fixed, ...caps, ...pem() }, gatewayRenewHandler(options));
  const admission = createAdmission(https, options);
  const server = createServer({ pauseOnConnect: true, noDelay: true, keepAlive: true }, (socket) => admission.offer(socket));
  // Nobody waits for an answer to what is no HTTP.
  https.on('clientError', (_error, socket) => socket.destroy());
  let serving: ServingIdentity | null = null;
  // When the first peer asks: whoever opens no WebSocket listener may have any key.
  const attached = attachGatewayWs(https, { ...options, serving: () => (serving ??= servingOf(material)) });
  return {
    server,
    get address() {
      const address = server.address();
      return address === null || typeof address === 'string' ? null : address;
    },
    get size() {
      return attached.size;
    },
    setTls(next) {
      material = checkMaterial(next, material);
      serving = null;
      https.setSecureContext({ ...fixed, ...pem() });
    },
    stopAccepting() {
      if (server.listening) server.close();
      admission.close();
      https.closeIdleConnections();
    },
    sweep: () => attached.sweep(),
    destroyAll() {
      attached.destroyAll();
      https.closeAllConnections();
    },
  };
}

/** @throws INVALID_CONFIG for a key that is not on P-256: it could prove nothing here */
function servingOf({ key, cert }: CheckedMaterial): ServingIdentity {
  return { signer: signerFromPrivateKey(createPrivateKey(key)), chain: parsePemCertificates(String(cert)) };
}
