/** Which way to the gateway the owner of the machine chose (WS-017). A ramdisk has a program of its own and knows no other than gRPC. */
import { ControlError } from '../../domain/errors.ts';
import { readIfPresent } from '../state/files.ts';
import { grpcRoute } from './grpc-route.ts';
import { type ProxyEnvironment, proxyFor } from './websocket/proxy.ts';
import { webSocketRoute } from './websocket/route.ts';
import type { GatewayRoute } from './wire.ts';

interface RouteSettings {
  /** Of the authorities of a proxy that takes TLS apart. */
  readonly proxyCaFile: string | undefined;
  readonly env: ProxyEnvironment;
}

/** @param url of a WebSocket listener; undefined: gRPC. @throws INVALID_CONFIG for a file or a proxy that cannot be used */
export async function openRoute(url: string | undefined, { proxyCaFile, env }: RouteSettings): Promise<GatewayRoute> {
  if (url === undefined) return grpcRoute;
  const proxyCa = proxyCaFile === undefined ? null : await readProxyCa(proxyCaFile);
  // Judged now: a name that is none would be found out at each dial.
  proxyFor(new URL(url), env);
  return webSocketRoute({ url, proxyCa, env });
}

async function readProxyCa(file: string): Promise<string> {
  const text = (await readIfPresent(file, 256 * 1024))?.toString('utf8');
  if (text?.includes('-----BEGIN CERTIFICATE-----') === true) return text;
  const what = text === undefined ? 'is not there' : 'holds no certificate in PEM';
  throw new ControlError('INVALID_CONFIG', `websocket.proxyCaFile: ${file} ${what}`, { details: { reason: 'config' } });
}
