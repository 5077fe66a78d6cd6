/** The opening of a WebSocket from the client's side (RFC 6455, 4.1), with what ours carries besides. */
import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { webSocketAcceptOf } from '../../../pki/handshake/index.ts';
import { webSocketHeaders, webSocketSubprotocol } from '../../../proto/index.ts';

export const newKey = (): string => randomBytes(16).toString('base64');

export const upgradeHeaders = (key: string, proof: string): Readonly<Record<string, string>> => ({
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': key,
  'sec-websocket-protocol': webSocketSubprotocol,
  [webSocketHeaders.nodeProof]: proof,
});

/** That a WebSocket server read this very request, speaks our protocol, and put nothing on top of it. */
export const isAnswerTo = (key: string, headers: IncomingHttpHeaders): boolean =>
  headers.upgrade?.toLowerCase() === 'websocket' &&
  headers['sec-websocket-accept'] === webSocketAcceptOf(key) &&
  headers['sec-websocket-protocol'] === webSocketSubprotocol &&
  headers['sec-websocket-extensions'] === undefined;
