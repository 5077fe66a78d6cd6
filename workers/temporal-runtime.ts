/** The SDK's runtime, installed once before anything else of it: its log lines go into ours, its metrics beside ours. */
import { createServer } from 'node:net';
import { type Logger, type LogLevel, makeTelemetryFilterString, Runtime } from '@temporalio/worker';
import type { ServiceLog } from '../services/log.ts';

interface SdkLog extends ServiceLog {
  debug(fields: object, message: string): void;
  trace(fields: object, message: string): void;
}

/** @returns the source of the SDK's metrics, as Prometheus text */
export async function installTemporalRuntime(log: SdkLog): Promise<() => Promise<string>> {
  const address = `127.0.0.1:${await freePort()}`;
  Runtime.install({
    logger: bridge(log),
    // The supervisor's signals are ours to answer.
    shutdownSignals: [],
    telemetryOptions: {
      logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN', other: 'ERROR' }) },
      metrics: { prometheus: { bindAddress: address, countersTotalSuffix: true, unitSuffix: true } },
    },
  });
  return async () => {
    const answer = await fetch(`http://${address}/metrics`, { signal: AbortSignal.timeout(1_000) });
    return answer.ok ? answer.text() : '';
  };
}

/** Names the ids in our words, so that a line can be found by its workflow. */
function bridge(log: SdkLog): Logger {
  const at =
    (level: keyof SdkLog) =>
    (message: string, meta: Record<string, unknown> = {}): void =>
      log[level](meta, message);
  const levels: Record<LogLevel, keyof SdkLog> = { TRACE: 'trace', DEBUG: 'debug', INFO: 'info', WARN: 'warn', ERROR: 'error' };
  return {
    log: (level, message, meta) => log[levels[level]](meta ?? {}, message),
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
  };
}

/** The exporter wants a port by number. */
const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
