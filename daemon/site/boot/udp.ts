/** A bound UDP socket, with the house's words where its port is not to be had. */
import { createSocket, type Socket } from 'node:dgram';
import { isIP } from 'node:net';
import { toPortError } from '../../../runtime/ports.ts';

export interface UdpPlace {
  readonly host: string;
  readonly port: number;
  readonly who: string;
  /** Name of the setting. */
  readonly setBy: string;
  /** Beside another socket of ours on the same port. */
  readonly shared?: boolean;
}

/** @throws PORT_TAKEN */
export function boundUdp({ shared = false, ...place }: UdpPlace): Promise<Socket> {
  const socket = createSocket({ type: isIP(place.host) === 6 ? 'udp6' : 'udp4', reuseAddr: shared });
  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => reject(toPortError(error, place) ?? error);
    socket.once('error', failed);
    socket.bind({ address: place.host, port: place.port }, () => {
      socket.off('error', failed);
      resolve(socket);
    });
  });
}
