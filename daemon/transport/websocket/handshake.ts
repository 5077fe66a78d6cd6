/** The opening of a WebSocket from the client's side (RFC 6455, 4.1), with what ours carries besides. */
import { createHash, randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

const subprotocol = 'bettercompute.agent.v1';
const acceptSalt = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

export const newKey = (): string => randomBytes(16).toString('base64');

export const upgradeHeaders = (key: string, proof: string): Readonly<Record<string, string>> => ({
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': key,
  'sec-websocket-protocol': subprotocol,
  'x-bc-node-proof': proof,
});

/** That a WebSocket server read this very request, speaks our protocol, and put nothing on top of it. */
export function isAnswerTo(key: string, headers: IncomingHttpHeaders): boolean {
  const accept = createHash('sha1').update(`${key}${acceptSalt}`).digest('base64');
  return (
    headers.upgrade?.toLowerCase() === 'websocket' &&
    headers['sec-websocket-accept'] === accept &&
    headers['sec-websocket-protocol'] === subprotocol &&
    headers['sec-websocket-extensions'] === undefined
  );
}
