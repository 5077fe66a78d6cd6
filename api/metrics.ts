/** What the api counts, beside what every process does. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { TrustView } from '../services/operator-reads.ts';

export interface ApiMetrics {
  request(request: { route: string; status: number; seconds: number }): void;
  relay(kind: string, code: string): void;
}

/** @param trust read when the metrics are; a failure leaves the last values */
export function createApiMetrics(registry: Registry, trust: () => Promise<TrustView>): ApiMetrics {
  const registers = [registry];
  const requests = new Histogram({
    name: 'bc_api_request_seconds',
    help: 'operator API requests',
    labelNames: ['route', 'status'],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10],
    registers,
  });
  const relays = new Counter({
    name: 'bc_api_relays_total',
    help: 'joins and renewals by outcome',
    labelNames: ['kind', 'code'],
    registers,
  });
  const connected = new Gauge({ name: 'bc_fleet_connected', help: 'connected nodes', registers });
  const behind = new Gauge({ name: 'bc_fleet_behind', help: 'connected nodes below the published trust version', registers });
  const version = new Gauge({
    name: 'bc_trust_version',
    help: 'published trust version',
    registers,
    async collect() {
      const now = await trust().catch(() => null);
      if (now === null) return;
      version.set(now.version);
      connected.set(now.connected);
      behind.set(now.behind);
    },
  });
  return {
    request: ({ route, status, seconds }) => requests.observe({ route, status: String(status) }, seconds),
    relay: (kind, code) => relays.inc({ kind, code }),
  };
}
