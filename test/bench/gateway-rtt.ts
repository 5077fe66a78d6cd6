/** CPU time of one small frame and its answer: Heartbeat and HeartbeatAck against an echo of the same bytes by bare node:http2. */
import {
  BenchServer,
  type Certificates,
  closeSessions,
  createCertificates,
  type Figure,
  heartbeatBytes,
  type LoadSession,
  median,
  openSessions,
  pause,
} from './gateway-load.ts';

export interface RttOptions {
  readonly sessions?: number;
  readonly inFlight?: number;
  readonly durationMs?: number;
  readonly rounds?: number;
}

const limit = 1.4;

interface Round {
  readonly cpuMicrosPerRoundTrip: number;
  readonly perSecond: number;
}

/** So many frames in flight over all sessions, one after another on each, for a while. */
function closedLoop(sessions: readonly LoadSession[], { inFlight, durationMs }: { inFlight: number; durationMs: number }): Promise<number> {
  const until = performance.now() + durationMs;
  let done = 0;
  let running = 0;
  let at = 0;
  return new Promise((resolve) => {
    const next = (): void => {
      const session = sessions[at % sessions.length] as LoadSession;
      at += 1;
      session.connection.data(session.stream, heartbeatBytes);
    };
    for (const session of sessions) {
      session.onAnswer = () => {
        done += 1;
        if (performance.now() < until) return next();
        running -= 1;
        if (running === 0) resolve(done);
      };
    }
    for (; running < inFlight; running += 1) next();
  });
}

async function measure(
  server: BenchServer,
  sessions: readonly LoadSession[],
  { inFlight = 64, durationMs = 2_000 }: RttOptions,
): Promise<Round> {
  const before = await server.cpuMicros();
  const startedAt = performance.now();
  const done = await closedLoop(sessions, { inFlight, durationMs });
  const seconds = (performance.now() - startedAt) / 1_000;
  return { cpuMicrosPerRoundTrip: ((await server.cpuMicros()) - before) / done, perSecond: done / seconds };
}

async function open(
  mode: 'ours' | 'bare',
  { config, leaves }: Certificates,
  count: number,
): Promise<{ server: BenchServer; sessions: LoadSession[] }> {
  const server = await BenchServer.start({ ...config, mode });
  return { server, sessions: await openSessions(server.port, { count, leaves }) };
}

/** Both servers stand at once and are measured in turn, so that a busy machine is busy for both. */
export async function figure(options: RttOptions = {}): Promise<Figure> {
  const { sessions = 500, rounds = 5 } = options;
  const certificates = await createCertificates(sessions);
  const bare = await open('bare', certificates, sessions);
  const ours = await open('ours', certificates, sessions);
  await measure(bare.server, bare.sessions, { ...options, durationMs: 1_000 });
  await measure(ours.server, ours.sessions, { ...options, durationMs: 1_000 });
  const bareRounds: Round[] = [];
  const oursRounds: Round[] = [];
  for (let round = 0; round < rounds; round += 1) {
    bareRounds.push(await measure(bare.server, bare.sessions, options));
    oursRounds.push(await measure(ours.server, ours.sessions, options));
    await pause(50);
  }
  for (const { server, sessions: openSessions_ } of [bare, ours]) {
    closeSessions(openSessions_);
    await server.stop();
  }
  const cpu = (list: readonly Round[]): number => median(list.map((round) => round.cpuMicrosPerRoundTrip));
  const ratio = median(oursRounds.map((round, at) => round.cpuMicrosPerRoundTrip / (bareRounds[at] as Round).cpuMicrosPerRoundTrip));
  const tenth = (value: number): number => Math.round(value * 10) / 10;
  return {
    figure: 'gateway: CPU of a small frame and its answer against bare node:http2',
    ratio,
    goal: `<= ${limit}`,
    holds: ratio <= limit,
    detail: {
      sessions,
      oursMicros: tenth(cpu(oursRounds)),
      bareMicros: tenth(cpu(bareRounds)),
      oursPerSecond: Math.round(median(oursRounds.map((round) => round.perSecond))),
      barePerSecond: Math.round(median(bareRounds.map((round) => round.perSecond))),
    },
  };
}
