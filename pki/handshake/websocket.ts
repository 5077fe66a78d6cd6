/**
 * Who is at each end of a WebSocket session (WS-012, WS-023 to WS-025, WS-033). A proxy that takes TLS apart keeps the client's
 * certificate and shows its own for the server's, so each end signs the handshake with the key of its certificate: the node a nonce
 * of its own, the gateway that same nonce.
 *
 * Threat model: the proxy sees both proofs and everything that follows. It can open the session once more elsewhere within the minute
 * that a proof is good for, and delay, drop or make up what a node *reports*; it can forge nothing that a machine obeys, for that
 * is signed end to end.
 */
import { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import {
  bounds,
  decodeMessage,
  encodeMessage,
  ProtocolError,
  u64be,
  type WebSocketGatewayProof,
  WebSocketGatewayProofSchema,
  type WebSocketNodeProof,
  WebSocketNodeProofSchema,
} from '../../proto/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import type { Signer } from '../x509/index.ts';

/** WS-025: how far the time of a proof may lie from that of its reader, ms, either way. */
export const handshakeSkewMs = minute;
export const handshakeNonceBytes = 32;

export interface HandshakeStatement {
  readonly trustDomain: string;
  readonly nodeId: string;
  readonly nonce: Uint8Array;
  /** Unix milliseconds. */
  readonly timeMs: bigint;
}

const partsOf = ({ trustDomain, nodeId, nonce, timeMs }: HandshakeStatement): [string, string, Uint8Array, Uint8Array] => [
  trustDomain,
  nodeId,
  nonce,
  u64be(timeMs),
];

interface Signing {
  readonly signer: Signer;
  /** DER, leaf first; the leaf's key is the signer's. */
  readonly chain: readonly Uint8Array[];
}

const encodeText = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

/** The text of `x-bc-node-proof`. */
export async function signNodeProof({ signer, chain }: Signing, statement: HandshakeStatement): Promise<string> {
  const proof = await signEnvelope(signer, 'ws-node', partsOf(statement));
  const { nonce, timeMs } = statement;
  return encodeText(encodeMessage(WebSocketNodeProofSchema, { chain: [...chain], nonce, timeMs, proof }, 'webSocketProof'));
}

/** The text of `x-bc-gateway-proof`. */
export async function signGatewayProof({ signer, chain }: Signing, statement: HandshakeStatement): Promise<string> {
  const proof = await signEnvelope(signer, 'ws-gateway', partsOf(statement));
  return encodeText(encodeMessage(WebSocketGatewayProofSchema, { chain: [...chain], timeMs: statement.timeMs, proof }, 'webSocketProof'));
}

/** What the header says; nothing in it is proven. @throws MALFORMED */
export function readNodeProof(text: string): WebSocketNodeProof {
  const read = readText(WebSocketNodeProofSchema, text);
  if (read.nonce.length !== handshakeNonceBytes) throw malformed(`the nonce has ${read.nonce.length} bytes, not ${handshakeNonceBytes}`);
  return read;
}

/** As readNodeProof. @throws MALFORMED */
export const readGatewayProof = (text: string): WebSocketGatewayProof => readText(WebSocketGatewayProofSchema, text);

function readText<S extends typeof WebSocketNodeProofSchema | typeof WebSocketGatewayProofSchema>(
  schema: S,
  text: string,
): ReturnType<typeof decodeMessage<S>> {
  const bytes = text.length > bounds.webSocketProof * 2 ? Buffer.alloc(0) : Buffer.from(text, 'base64url');
  if (bytes.length === 0 || bytes.toString('base64url') !== text) throw malformed('it is no base64url of a message within its bound');
  try {
    const read = decodeMessage(schema, bytes, 'webSocketProof');
    const { length } = read.chain as readonly Uint8Array[];
    if (length > 0 && length <= bounds.certificateChainLength) return read;
    throw malformed(`its chain has ${length} certificates`);
  } catch (cause) {
    throw cause instanceof ProtocolError ? malformed('it does not decode', cause) : cause;
  }
}

const malformed = (what: string, cause?: unknown): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `the proof of the WebSocket handshake cannot be read: ${what}`, {
    details: { reason: 'websocket-proof' },
    ...(cause === undefined ? {} : { cause }),
  });

export interface ProofCheck {
  readonly trustDomain: string;
  /** Whose handshake it is. */
  readonly nodeId: string;
  /** SPKI of the chain's leaf, after the chain was verified. */
  readonly key: Uint8Array;
  readonly now: number;
}

/** @throws BAD_SIGNATURE; CLOCK_SKEW when its time is more than handshakeSkewMs away */
export function verifyNodeProof({ nonce, timeMs, proof }: WebSocketNodeProof, check: ProofCheck): void {
  verifyEnvelope({ signature: proof, purpose: 'ws-node', parts: partsOf({ ...check, nonce, timeMs }), key: check.key });
  assertTime(timeMs, check.now);
}

/** @param check.nonce the one this node sent. @throws as verifyNodeProof */
export function verifyGatewayProof({ timeMs, proof }: WebSocketGatewayProof, check: ProofCheck & { readonly nonce: Uint8Array }): void {
  verifyEnvelope({ signature: proof, purpose: 'ws-gateway', parts: partsOf({ ...check, timeMs }), key: check.key });
  assertTime(timeMs, check.now);
}

function assertTime(timeMs: bigint, now: number): void {
  const offsetMs = Number(timeMs) - now;
  if (Math.abs(offsetMs) <= handshakeSkewMs) return;
  throw new ControlError(
    'CLOCK_SKEW',
    `the proof of the WebSocket handshake is ${Math.round(Math.abs(offsetMs) / 1000)} s ${offsetMs > 0 ? 'ahead' : 'old'}, and ${handshakeSkewMs / 1000} s are allowed`,
    { details: { reason: 'clock-skew', serverTimeMs: now } },
  );
}
