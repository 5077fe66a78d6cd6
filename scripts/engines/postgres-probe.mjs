import { connect } from 'node:net';

/**
 * Whether PostgreSQL takes logins: a start-up message, as any client sends it, is answered with a request for a password
 * ('R'). While it starts or recovers the answer is an error ('E'), and before that nobody listens.
 *
 * @param {{ port: number, user: string, database: string, timeoutMs?: number }} target
 * @returns {Promise<boolean>}
 */
export function acceptsConnections({ port, user, database, timeoutMs = 2_000 }) {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    const answer = (ready) => {
      socket.destroy();
      resolve(ready);
    };
    socket.setTimeout(timeoutMs, () => answer(false));
    socket.on('error', () => answer(false));
    socket.on('close', () => answer(false));
    socket.on('connect', () => socket.write(startupMessage({ user, database })));
    socket.once('data', (data) => answer(data[0] === 0x52));
  });
}

/** Protocol 3.0: length, version, then name and value pairs, each ended by a zero byte. */
function startupMessage(parameters) {
  const body = Buffer.from(`${Object.entries(parameters).flat().join('\0')}\0\0`);
  const message = Buffer.alloc(8 + body.length);
  message.writeUInt32BE(message.length, 0);
  message.writeUInt32BE(0x00030000, 4);
  body.copy(message, 8);
  return message;
}
