import { createHash } from 'node:crypto';

const salt = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** The `Sec-WebSocket-Accept` of a `Sec-WebSocket-Key`: the answer is to this request, by a server of WebSockets (RFC 6455, 4.2.2). */
export const webSocketAcceptOf = (key: string): string => createHash('sha1').update(`${key}${salt}`).digest('base64');
