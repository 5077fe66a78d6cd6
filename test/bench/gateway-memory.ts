/** Memory of an idle mutual-TLS session: the gateway against node:http2 that does nothing with it. */
import { BenchServer, type Certificates, closeSessions, createCertificates, type Figure, openSessions, pause } from './gateway-load.ts';

export interface MemoryOptions {
  readonly sessions?: number;
  readonly idleMs?: number;
}

const limit = 1.15;

/** The slope between a quarter and all of the sessions: what a process needs to start, and what its allocator keeps, drops out. */
async function measure(
  mode: 'ours' | 'bare',
  { config, leaves }: Certificates,
  { sessions = 2_000, idleMs = 2_500 }: MemoryOptions,
): Promise<{ total: number; heap: number }> {
  const server = await BenchServer.start({ ...config, mode });
  const quarter = Math.floor(sessions / 4);
  const first = await openSessions(server.port, { count: quarter, leaves: leaves.slice(0, quarter) });
  await pause(idleMs);
  const before = await server.figures();
  const rest = await openSessions(server.port, { count: sessions - quarter, leaves: leaves.slice(quarter) });
  await pause(idleMs);
  const after = await server.figures();
  closeSessions([...first, ...rest]);
  await server.stop();
  const added = sessions - quarter;
  return { total: (after.memoryBytes - before.memoryBytes) / added, heap: (after.heapBytes - before.heapBytes) / added };
}

export async function figure(options: MemoryOptions = {}): Promise<Figure> {
  const certificates = await createCertificates(options.sessions ?? 2_000);
  const bare = await measure('bare', certificates, options);
  const ours = await measure('ours', certificates, options);
  const ratio = ours.total / bare.total;
  const kib = (bytes: number): number => Math.round(bytes / 102.4) / 10;
  return {
    figure: 'gateway: memory of an idle session against bare node:http2',
    ratio,
    goal: `<= ${limit}`,
    holds: ratio <= limit,
    detail: {
      sessions: options.sessions ?? 2_000,
      oursKiB: kib(ours.total),
      bareKiB: kib(bare.total),
      oursHeapKiB: kib(ours.heap),
      bareHeapKiB: kib(bare.heap),
    },
  };
}
