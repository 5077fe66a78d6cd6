import { createServer } from 'node:net';
import { SetupError } from './failure.mjs';

/**
 * The port asked for when it is free, or a free one for 0.
 *
 * @param {{ host?: string, port: number, who: string, setBy: string }} request
 */
export function claimPort({ host = '127.0.0.1', port, who, setBy }) {
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
