/** One request message, one answer message, on a pinned connection: Join and Renew. */
import { constants, type IncomingHttpHeaders } from 'node:http2';
import { ControlError } from '../../domain/errors.ts';
import { frameMessage } from '../../proto/index.ts';
import { daemonVersion } from '../version.ts';
import { refusalOf } from './grpc-status.ts';
import { createMessageCutter } from './message-cutter.ts';
import type { PinnedConnection } from './pinned-connection.ts';

/** Method → its service: what a gateway offers to daemons, and to the programs of callers. */
const services = {
  Join: 'AgentGateway',
  Renew: 'AgentGateway',
  Session: 'AgentGateway',
  Tunnel: 'AgentGateway',
  Connect: 'TunnelGateway',
} as const;

export type Method = keyof typeof services;

/** te: trailers, or proxies drop the status (B28). */
export const requestHeaders = (method: Method) => ({
  ':method': 'POST',
  ':path': `/bettercompute.agent.v1.${services[method]}/${method}`,
  'content-type': 'application/grpc+proto',
  te: 'trailers',
  'user-agent': `bcd/${daemonVersion}`,
});

export interface CallOptions {
  readonly method: 'Join' | 'Renew';
  readonly request: Uint8Array;
  readonly maxAnswerBytes: number;
  readonly timeoutMs: number;
}

/** @throws what refusalOf makes of a refusal; UNAVAILABLE when no whole answer came in time; FRAME_TOO_LARGE */
export function callGateway(connection: PinnedConnection, options: CallOptions): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const stream = connection.session.request(requestHeaders(options.method));
    const cutter = createMessageCutter(options.maxAnswerBytes);
    const messages: Uint8Array[] = [];
    let headers: IncomingHttpHeaders | undefined;
    let failure: unknown;
    const fail = (error: unknown): void => {
      failure ??= error;
      stream.close(constants.NGHTTP2_CANCEL);
    };
    const timer = setTimeout(
      () =>
        fail(
          new ControlError('UNAVAILABLE', `${options.method}: no answer within ${options.timeoutMs / 1000} s`, {
            details: { reason: 'timeout' },
          }),
        ),
      options.timeoutMs,
    );
    const onHeaders = (more: IncomingHttpHeaders): void => void (headers = { ...headers, ...more });
    stream.on('response', onHeaders);
    stream.on('trailers', onHeaders);
    stream.on('data', (chunk: Buffer) => {
      try {
        messages.push(...cutter.push(chunk));
      } catch (error) {
        fail(error);
      }
    });
    stream.on(
      'error',
      (cause) =>
        (failure ??= new ControlError('UNAVAILABLE', `${options.method}: the connection was lost`, {
          cause,
          details: { reason: 'connection-lost' },
        })),
    );
    stream.on('close', () => {
      clearTimeout(timer);
      const refusal = headers === undefined ? undefined : refusalOf(headers);
      if (refusal === null && messages.length === 1 && !cutter.isInMessage) return resolve(messages[0] as Uint8Array);
      reject(refusal ?? failure ?? refusalOf(undefined) ?? failure);
    });
    stream.end(frameMessage(options.request, Buffer.allocUnsafe));
  });
}
