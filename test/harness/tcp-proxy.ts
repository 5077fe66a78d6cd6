/** A TCP path between two parties that a test may make swallow everything, in one direction or both, without closing anything. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface TcpProxy {
  readonly port: number;
  /** From now on, not a byte passes; connections stay open. */
  swallow(): void;
  pass(): void;
  readonly accepted: number;
  close(): Promise<void>;
}

export async function startTcpProxy(targetPort: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let swallowing = false;
  let accepted = 0;
  const server = createServer((near) => {
    accepted += 1;
    const far = connect(targetPort, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('data', (chunk) => {
        if (!swallowing) to.write(chunk);
      });
      from.on('close', () => {
        sockets.delete(from);
        if (!swallowing) to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    swallow: () => void (swallowing = true),
    pass: () => void (swallowing = false),
    get accepted() {
      return accepted;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
