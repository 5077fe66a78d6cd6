/** The names that both ends of a WebSocket session use (WS-002, WS-010). */

export const webSocketPaths = Object.freeze({ session: '/v1/session', renew: '/v1/renew' });

/** A later protocol of frames gets another. */
export const webSocketSubprotocol = 'bettercompute.agent.v1';

export const webSocketHeaders = Object.freeze({ nodeProof: 'x-bc-node-proof', gatewayProof: 'x-bc-gateway-proof' });

/** Of what a renewal is and is answered with. */
export const renewContentType = 'application/x-protobuf';
