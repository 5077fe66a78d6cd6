/**
 * POST /v1/renew: a RenewRequest for daemons whose client certificate no TLS brings (WS-010 to WS-016). The request carries the current
 * chain and a proof of possession by its key, and both are judged here, so that only the node itself uses up its renewals; then the
 * control plane judges everything again, with its replay cache.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { verifyRenewProof } from '../../pki/enroll/renew.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import {
  bounds,
  decodeMessage,
  ProtocolError,
  type RenewRequest,
  RenewRequestSchema,
  renewContentType,
  webSocketPaths,
} from '../../proto/index.ts';
import { refusal, toWireRefusal } from '../grpc/refusals.ts';
import type { RenewLimit } from '../renew-limit.ts';
import type { GatewayServices } from '../services.ts';
import { withClockTold } from '../tls/clock-refusal.ts';
import { verifyPeer } from '../tls/peer.ts';
import { refusalHeaders } from './http.ts';
import type { GatewayWsOptions } from './options.ts';

type RenewOptions = Pick<GatewayWsOptions, 'anchors' | 'trustDomain' | 'isRevoked' | 'scheduler' | 'random' | 'log' | 'metrics'> & {
  readonly services: Pick<GatewayServices, 'renew'>;
  readonly renewLimit: RenewLimit;
};

const requestWithinMs = 10_000;

/** A handler of every request of an HTTP server: POST /v1/renew is served, anything else is 404, 405 or 415. */
export function gatewayRenewHandler(options: RenewOptions): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const status = statusOf(request);
    if (status !== null) return plain(response, status);
    void answer(request, options).then(
      (bytes) => {
        if (response.destroyed) return;
        response.writeHead(200, { 'content-type': renewContentType, 'content-length': bytes.length });
        response.end(bytes);
      },
      (error: unknown) => {
        const wire = toWireRefusal(error, options.random);
        options.metrics.refused(wire.reason);
        options.log.debug({ reason: wire.reason, err: error }, 'a renewal over HTTP was refused');
        if (!response.destroyed) response.writeHead(wire.http, refusalHeaders(wire)).end();
      },
    );
  };
}

function plain(response: ServerResponse, status: number): void {
  response.writeHead(status, { 'content-length': 0, connection: 'close', ...(status === 405 ? { allow: 'POST' } : {}) }).end();
}

/** null: it is a request for a renewal. */
function statusOf({ url, method, headers }: IncomingMessage): number | null {
  if (url !== webSocketPaths.renew) return 404;
  if (method !== 'POST') return 405;
  return headers['content-type'] === renewContentType ? null : 415;
}

async function answer(request: IncomingMessage, options: RenewOptions): Promise<Uint8Array> {
  const bytes = await bodyOf(request, options);
  const message = decode(bytes);
  const nodeId = proven(message, options);
  options.renewLimit.count(nodeId, options.scheduler.now());
  return options.services.renew(bytes, { chain: message.chain });
}

/** @returns the node whose chain it is and whose key signed the request */
function proven({ chain, csr, timeMs, proof }: RenewRequest, { anchors, trustDomain, isRevoked, scheduler }: RenewOptions): string {
  const now = scheduler.now();
  if (chain.length > bounds.certificateChainLength) throw refusal('client-certificate-invalid', { message: 'the chain is too long' });
  let peer: ReturnType<typeof verifyPeer>;
  try {
    peer = verifyPeer(chain, { anchors: anchors(), trustDomain, now, isRevoked });
  } catch (error) {
    throw withClockTold(error, now);
  }
  const { nodeId } = peer.identity;
  try {
    verifyRenewProof(proof, { csr, nodeId, timeMs }, parseCertificate(chain[0] as Uint8Array).spki);
  } catch (cause) {
    throw refusal('bad-proof', { cause });
  }
  return nodeId;
}

function decode(bytes: Uint8Array): RenewRequest {
  try {
    return decodeMessage(RenewRequestSchema, bytes, 'renewRequest');
  } catch (cause) {
    throw refusal(cause instanceof ProtocolError && cause.code === 'FRAME_TOO_LARGE' ? 'frame-too-large' : 'undecodable-frame', { cause });
  }
}

function bodyOf(request: IncomingMessage, { scheduler }: RenewOptions): Promise<Uint8Array> {
  const tooLarge = (): Error => refusal('frame-too-large', { message: `a renewal has at most ${bounds.renewRequest} bytes` });
  if (Number(request.headers['content-length'] ?? 0) > bounds.renewRequest) return Promise.reject(tooLarge());
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    let size = 0;
    const settle = (error: Error | null): void => {
      late();
      request.removeAllListeners('data');
      if (error === null) resolve(Buffer.concat(pieces));
      else reject(error);
    };
    const late = scheduler.after(requestWithinMs, () => settle(refusal('no-message', { message: 'the request did not arrive in time' })));
    request.on('data', (piece: Buffer) => {
      size += piece.length;
      if (size > bounds.renewRequest) settle(tooLarge());
      else pieces.push(piece);
    });
    request.once('end', () => settle(null));
    request.once('close', () => settle(refusal('no-message', { message: 'the request was given up' })));
    request.once('error', () => undefined);
  });
}
