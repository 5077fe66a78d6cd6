/**
 * Opening a session over a WebSocket: what the request must say, who asks, and what the answer proves (WS-002, WS-012, WS-023 to WS-025,
 * WS-033). Decisions only; the sockets are attach.ts.
 *
 * The TLS below may end at a proxy, so it proves nothing here. The node's certificate chain comes in a header, judged exactly as one that
 * TLS brought (the same authorities, revocation, trust domain, role), and its key signs a nonce of its own, good once. The answer carries
 * the gateway's chain and its signature over the same nonce.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { isControlError } from '../../domain/errors.ts';
import { readNodeProof, verifyNodeProof } from '../../pki/handshake/index.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import { type WebSocketNodeProof, webSocketHeaders, webSocketSubprotocol } from '../../proto/index.ts';
import { refusal } from '../grpc/refusals.ts';
import { withClockTold } from '../tls/clock-refusal.ts';
import { type Peer, type PeerRules, verifyPeer } from '../tls/peer.ts';
import type { NonceGuard } from './nonces.ts';

const listed = (value: string | undefined): string[] => (value ?? '').split(',').map((one) => one.trim());

const has = (value: string | undefined, token: string): boolean => listed(value).some((one) => one.toLowerCase() === token);

/** @returns the key of the request; null: it is no WebSocket handshake of this protocol, and 400 answers it */
export function readUpgrade(headers: IncomingHttpHeaders): string | null {
  const key = headers['sec-websocket-key'];
  const isOne =
    has(headers.upgrade, 'websocket') &&
    has(headers.connection, 'upgrade') &&
    headers['sec-websocket-version'] === '13' &&
    listed(headers['sec-websocket-protocol']).includes(webSocketSubprotocol);
  return isOne && typeof key === 'string' && /^[A-Za-z0-9+/]{21}[AQgw]==$/.test(key) ? key : null;
}

export interface HandshakeRules extends Omit<PeerRules, 'now'> {
  readonly now: number;
  readonly nonces: NonceGuard;
}

export interface ProvenNode {
  readonly peer: Peer;
  readonly nonce: Uint8Array;
}

/**
 * The checks, in order: form, chain, signature, time, nonce. Nothing is remembered of a request that fails before the last.
 *
 * @throws no-client-certificate, bad-proof, clock-skew (with our time), replayed, and what verifyPeer throws
 */
export function proveNode(headers: IncomingHttpHeaders, rules: HandshakeRules): ProvenNode {
  const proof = readProof(headers[webSocketHeaders.nodeProof]);
  const peer = peerOf(proof, rules);
  const { nodeId } = peer.identity;
  const key = parseCertificate(proof.chain[0] as Uint8Array).spki;
  try {
    verifyNodeProof(proof, { trustDomain: rules.trustDomain, nodeId, key, now: rules.now });
  } catch (cause) {
    // A clock that is off has a refusal of its own: with our time in it, the node dials again.
    throw isControlError(cause) && cause.code === 'CLOCK_SKEW' ? cause : refusal('bad-proof', { cause });
  }
  if (!rules.nonces.take(proof.nonce, rules.now)) throw refusal('bad-proof', { message: 'this handshake was used before' });
  return { peer, nonce: proof.nonce };
}

function readProof(header: string | string[] | undefined): WebSocketNodeProof {
  if (typeof header !== 'string') {
    throw refusal('no-client-certificate', {
      message: `a WebSocket handshake proves the node's certificate in one header ${webSocketHeaders.nodeProof}`,
    });
  }
  try {
    return readNodeProof(header);
  } catch (cause) {
    throw refusal('bad-proof', { message: `the header ${webSocketHeaders.nodeProof} is no proof`, cause });
  }
}

function peerOf(proof: WebSocketNodeProof, rules: PeerRules): Peer {
  try {
    return verifyPeer(proof.chain, rules);
  } catch (error) {
    throw withClockTold(error, rules.now);
  }
}
