/** Proofs of the two ends of a connection whose TLS proves neither. They say who speaks, for one connection; nothing that is obeyed. */
export { webSocketAcceptOf } from './accept.ts';
export {
  handshakeNonceBytes,
  handshakeSkewMs,
  readGatewayProof,
  readNodeProof,
  signGatewayProof,
  signNodeProof,
  verifyGatewayProof,
  verifyNodeProof,
} from './websocket.ts';
