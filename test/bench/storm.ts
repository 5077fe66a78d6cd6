/**
 * A reconnect storm: live sessions keep talking while thousands of nodes arrive at once. What the live ones feel is the
 * figure. The storm comes from a process of its own, so that its handshakes do not delay the clock that is read here; and where
 * the machine lets us, the load keeps to one core, because arriving nodes bring their own.
 */
import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { constants, cpus, setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';
import {
  BenchServer,
  type Certificates,
  closeSessions,
  createCertificates,
  type Figure,
  heartbeatBytes,
  type LoadSession,
  openSessions,
  pause,
  percentile,
} from './gateway-load.ts';

export interface StormOptions {
  readonly live?: number;
  readonly arriving?: number;
  /** Frames a second over all live sessions. */
  readonly perSecond?: number;
}

const limitMs = 40;

interface StormTask {
  readonly port: number;
  readonly leaves: Certificates['leaves'];
}

interface Felt {
  readonly calmP99: number;
  readonly stormP99: number;
  readonly stormMax: number;
  readonly seconds: number;
  readonly longestPauseMs: number;
  /** The load kept to one core. */
  readonly isApart: boolean;
  /** CPU time of the server for each that arrived, the live ones' frames included. */
  readonly cpuMsPerArrival: number;
}

const self = fileURLToPath(import.meta.url);
const stormEnv = 'BENCH_STORM_CLIENT';

/** One frame at a time, the sessions in turn; answers the time each took. */
function startPacing(sessions: readonly LoadSession[], perSecond: number): { take(): number[]; stop(): void } {
  let times: number[] = [];
  let at = 0;
  const timer = setInterval(() => {
    const due = Math.max(1, Math.round(perSecond / 100));
    for (let sent = 0; sent < due; sent += 1) {
      const session = sessions[at % sessions.length] as LoadSession;
      at += 1;
      if (session.onAnswer !== null) continue;
      const sentAt = performance.now();
      session.onAnswer = () => {
        times.push(performance.now() - sentAt);
        session.onAnswer = null;
      };
      session.connection.data(session.stream, heartbeatBytes);
    }
  }, 10);
  return {
    take() {
      const taken = times;
      times = [];
      return taken;
    },
    stop: () => clearInterval(timer),
  };
}

async function measure(
  mode: 'ours' | 'bare',
  certificates: Certificates,
  { live = 500, arriving = 2_000, perSecond = 500 }: StormOptions,
): Promise<Felt> {
  const server = await BenchServer.start({ ...certificates.config, mode });
  const sessions = await openSessions(server.port, { count: live, leaves: certificates.leaves });
  const pacing = startPacing(sessions, perSecond);
  await pause(1_000);
  pacing.take();
  await pause(2_000);
  const calm = pacing.take();
  const { cpuMicros: cpuBefore } = await server.figures();
  const client = await startStormClient();
  const isApart = keepToLastCore(client.pid);
  pacing.take();
  const startedAt = performance.now();
  client.send({ port: server.port, leaves: certificates.leaves.slice(live, live + arriving).map(({ key: _key, ...leaf }) => leaf) });
  await once(client, 'message');
  const seconds = (performance.now() - startedAt) / 1_000;
  const stormed = pacing.take();
  pacing.stop();
  const { longestPauseMs, cpuMicros } = await server.figures();
  closeSessions(sessions);
  client.disconnect();
  await once(client, 'exit');
  await server.stop();
  // The next server, and the figures after this one, inherit the cores of this process.
  keepTo(`0-${cpus().length - 1}`, [process.pid]);
  return {
    calmP99: percentile(calm, 99),
    stormP99: percentile(stormed, 99),
    stormMax: percentile(stormed, 100),
    seconds,
    longestPauseMs,
    isApart,
    cpuMsPerArrival: (cpuMicros - cpuBefore) / 1_000 / arriving,
  };
}

/** The load on the last core, where the storm gives way to the clock. False where that cannot be had. */
function keepToLastCore(storm: number | undefined): boolean {
  if (storm === undefined || cpus().length < 2) return false;
  if (!keepTo(String(cpus().length - 1), [storm, process.pid])) return false;
  setPriority(storm, constants.priority.PRIORITY_LOW);
  return true;
}

/** @param cores as taskset reads them: `1`, `0-3` */
function keepTo(cores: string, pids: readonly number[]): boolean {
  try {
    for (const pid of pids) execFileSync('taskset', ['--all-tasks', '--cpu-list', '--pid', cores, String(pid)], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

async function startStormClient(): Promise<ReturnType<typeof fork>> {
  const execArgv = self.endsWith('.ts') ? ['--import', 'tsx'] : [];
  const client = fork(self, [], { execArgv, env: { ...process.env, [stormEnv]: '1' }, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  await once(client, 'message');
  return client;
}

/** The other side of `startStormClient`: everyone dials at once. */
function runStormClient(): void {
  process.on('message', ({ port, leaves }: StormTask) => {
    void openSessions(port, { count: leaves.length, leaves, atATime: leaves.length }).then(() => process.send?.('arrived'));
  });
  process.on('disconnect', () => process.exit(0));
  process.send?.('ready');
}

export async function figure(options: StormOptions = {}): Promise<Figure> {
  const { live = 500, arriving = 2_000 } = options;
  const certificates = await createCertificates(live + arriving);
  const bare = await measure('bare', certificates, options);
  const ours = await measure('ours', certificates, options);
  const tenth = (value: number): number => Math.round(value * 10) / 10;
  return {
    figure: 'gateway: p99 of live sessions while nodes arrive, against bare node:http2 without a door',
    ratio: ours.stormP99 / bare.stormP99,
    measured: `${tenth(ours.stormP99)} ms`,
    goal: `p99 <= ${limitMs} ms`,
    holds: ours.stormP99 <= limitMs,
    detail: {
      live,
      arriving,
      serverCore: ours.isApart ? 'own, load on the last' : 'shared with the load',
      oursCalmP99Ms: tenth(ours.calmP99),
      oursStormP99Ms: tenth(ours.stormP99),
      oursStormMaxMs: tenth(ours.stormMax),
      oursSeconds: tenth(ours.seconds),
      oursCpuMsPerArrival: tenth(ours.cpuMsPerArrival),
      bareCpuMsPerArrival: tenth(bare.cpuMsPerArrival),
      oursLongestPauseMs: tenth(ours.longestPauseMs),
      bareCalmP99Ms: tenth(bare.calmP99),
      bareStormP99Ms: tenth(bare.stormP99),
      bareStormMaxMs: tenth(bare.stormMax),
      bareSeconds: tenth(bare.seconds),
    },
  };
}

if (process.env[stormEnv] === '1') runStormClient();
