import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { SetupError } from './failure.mjs';

/**
 * Where a port of free choice is taken from: below the ports that systems give to outgoing connections (from 32768 on Linux, from
 * 49152 elsewhere). One of those would be free now and some connection's own when its process binds it seconds later.
 */
export const freeChoice = Object.freeze({ from: 16_384, to: 32_767 });
const attempts = 100;

/**
 * The port asked for when it is free, or a free one for 0.
 *
 * @param {{ host?: string, port: number, who: string, setBy: string }} request
 */
export async function claimPort(request) {
  for (let attempt = 0; request.port === 0 && attempt < attempts; attempt++) {
    const port = randomInt(freeChoice.from, freeChoice.to + 1);
    if (await isPortFree(port, request.host)) return port;
  }
  return bindOnce(request);
}

function bindOnce({ host = '127.0.0.1', port, who, setBy }) {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error) => {
      if (error.code !== 'EADDRINUSE' && error.code !== 'EACCES') return reject(error);
      const reason = error.code === 'EACCES' ? 'may not be opened by this user' : 'is taken';
      reject(
        new SetupError(
          `port ${host}:${port} ${reason}; ${who} asked for it (set by ${setBy})`,
          'choose another port, or stop the process that holds it',
        ),
      );
    });
    server.listen({ host, port, exclusive: true }, () => {
      const { port: bound } = server.address();
      server.close(() => resolve(bound));
    });
  });
}

/** @param {number} port */
export function isPortFree(port, host = '127.0.0.1') {
  return claimPort({ host, port, who: 'a look', setBy: 'nobody' }).then(
    () => true,
    () => false,
  );
}
