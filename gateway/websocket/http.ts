/** What the WebSocket listener answers in plain HTTP: refusals with the headers that daemons read on gRPC (WS-011). */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { refusalTrailers } from '../grpc/metadata.ts';
import type { WireRefusal } from '../grpc/refusals.ts';

/** The answer of a refusal; UNAVAILABLE and its like are told by status too. */
export const refusalHeaders = (wire: WireRefusal): Readonly<Record<string, string>> => ({
  ...(refusalTrailers(wire) as Record<string, string>),
  'content-length': '0',
  connection: 'close',
});

/** The head of an answer on a socket that node's HTTP server has given away. */
export function answerHead(status: number, headers: Readonly<Record<string, string>>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n`;
}

export function refuseUpgrade(socket: Duplex, status: number, headers: Readonly<Record<string, string>>): void {
  if (socket.destroyed) return;
  socket.end(answerHead(status, { 'content-length': '0', connection: 'close', ...headers }));
  // Whoever does not close after this is closed.
  socket.once('finish', () => socket.destroy());
}
