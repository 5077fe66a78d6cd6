/** Binding ports: a taken port is a clear error that says which port, who asked for it and what sets it. */
import type { AddressInfo, Server } from 'node:net';
import { ControlError } from '../domain/errors.ts';

export interface PortRequest {
  readonly host: string;
  /** 0: a free one of the system's choice. */
  readonly port: number;
  /** Who asks: "the gateway", "the metrics of worker control". */
  readonly who: string;
  /** The environment name or flag that chooses another port. */
  readonly setBy: string;
}

const reasons: Readonly<Record<string, string>> = Object.freeze({
  EADDRINUSE: 'is taken',
  EACCES: 'may not be opened by this user',
  EADDRNOTAVAIL: 'is not an address of this machine',
});

/** A bind error as PORT_TAKEN; null when it is none. */
export function toPortError(error: unknown, request: PortRequest): ControlError<'PORT_TAKEN'> | null {
  const code = (error as { code?: unknown } | null)?.code;
  const reason = typeof code === 'string' ? reasons[code] : undefined;
  if (reason === undefined) return null;
  return new ControlError(
    'PORT_TAKEN',
    `port ${request.host}:${request.port} ${reason}; ${request.who} asked for it (set by ${request.setBy})`,
    {
      details: {
        reason: code === 'EADDRINUSE' ? 'port-in-use' : 'port-refused',
        port: request.port,
        host: request.host,
        who: request.who,
        setBy: request.setBy,
      },
      cause: error,
    },
  );
}

/**
 * Binds a server (http, https, http2, net) and answers with where it is.
 *
 * @throws PORT_TAKEN
 */
export function listenOn(server: Server, request: PortRequest): Promise<{ readonly host: string; readonly port: number }> {
  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => reject(toPortError(error, request) ?? error);
    server.once('error', failed);
    server.listen({ host: request.host, port: request.port }, () => {
      server.off('error', failed);
      const { address, port } = server.address() as AddressInfo;
      resolve({ host: address, port });
    });
  });
}

export const showAddress = (at: { readonly host: string; readonly port: number }): string =>
  at.host.includes(':') ? `[${at.host}]:${at.port}` : `${at.host}:${at.port}`;
