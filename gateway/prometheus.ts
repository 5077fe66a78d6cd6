/** The gateway's counters in a Prometheus registry. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { Gateway } from './gateway.ts';
import type { GatewayMetrics } from './metrics.ts';

export function createPrometheusMetrics(registry: Registry): GatewayMetrics {
  const registers = [registry];
  const counter = (name: string, help: string): Counter => new Counter({ name: `bc_gateway_${name}_total`, help, registers });
  const labelled = (name: string, help: string, label: string): Counter =>
    new Counter({ name: `bc_gateway_${name}_total`, help, labelNames: [label], registers });
  const refused = labelled('refusals', 'streams and calls refused, by x-bc-reason', 'reason');
  const opened = counter('sessions_opened', 'sessions opened');
  const ended = labelled('sessions_ended', 'sessions ended, by reason', 'reason');
  const cut = labelled('connections_cut', 'connections closed by the gateway', 'why');
  const trustRefused = counter('trust_refused', 'trust bundles that daemons refused');
  const pokes = counter('pokes', 'notifications heard');
  const lost = counter('listen_lost', 'listening connections lost');
  const database = labelled('database_failures', 'database calls that failed', 'what');
  const revoked = new Histogram({
    name: 'bc_gateway_revoked_after_seconds',
    help: 'from the revocation to the end of the session',
    buckets: [0.1, 0.5, 1, 2, 5, 10, 60],
    registers,
  });
  return {
    refused: (reason) => refused.inc({ reason }),
    sessionOpened: () => opened.inc(),
    sessionEnded: (reason) => ended.inc({ reason }),
    connectionCut: (why) => cut.inc({ why }),
    trustRefused: () => trustRefused.inc(),
    revokedAfterMs: (ms) => revoked.observe(ms / 1_000),
    pokeHeard: () => pokes.inc(),
    listenLost: () => lost.inc(),
    databaseFailed: (what) => database.inc({ what }),
  };
}

/** What is read when it is asked for, and which gateway it is of. */
export function addGauges(
  registry: Registry,
  { gateway, gatewayId, region }: { readonly gateway: Gateway; readonly gatewayId: string; readonly region: string },
): void {
  const info = new Gauge({
    name: 'bc_gateway_info',
    help: 'always 1; its labels say which gateway this is, and of which region',
    labelNames: ['gateway_id', 'region'],
    registers: [registry],
  });
  info.set({ gateway_id: gatewayId, region }, 1);
  const gauge = (name: string, help: string, read: (of: Gateway) => number): void => {
    const metric: Gauge = new Gauge({
      name: `bc_gateway_${name}`,
      help,
      registers: [registry],
      collect: () => metric.set(read(gateway)),
    });
  };
  gauge('sessions', 'open sessions', (of) => of.sessions.size);
  gauge('connections', 'connections', (of) => of.connections.size);
  gauge('revoked_certificates', 'revoked, unexpired certificates known', (of) => of.revocations.size);
  gauge('trust_version', 'published trust version handed out', (of) => of.sessions.publishedVersion ?? 0);
}
