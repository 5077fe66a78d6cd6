/**
 * What every process shows of itself on its metrics port: /healthz (it runs), /readyz (it can do its work, with the reason
 * when it cannot) and /metrics (Prometheus text; further sources, such as the Temporal SDK's, are appended).
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { collectDefaultMetrics, Registry } from 'prom-client';
import { codeOf } from '../domain/errors.ts';
import { redactText } from './log.ts';
import { listenOn, showAddress } from './ports.ts';

type Check = () => Promise<void> | void;

export interface Health {
  readonly registry: Registry;
  /** Ready means: every check passes. A check throws with what is wrong. */
  check(name: string, fn: Check): void;
  /** More Prometheus text under /metrics; a source that fails is left out of that answer. */
  addSource(source: () => Promise<string>): void;
  listen(at: { host: string; port: number }): Promise<HealthServer>;
}

export interface HealthServer {
  /** host:port */
  readonly address: string;
  close(): Promise<void>;
}

const checkWithinMs = 2_000;
/**
 * How often the lag of the event loop is sampled, and therefore the least that its figures show. At the library's own 10 ms the timer
 * alone was more than half of what an api with nothing to do cost.
 */
const lagEveryMs = 100;

export function createHealth({ process: name }: { process: string }): Health {
  const registry = new Registry();
  registry.setDefaultLabels({ process: name });
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: lagEveryMs });
  const checks = new Map<string, Check>();
  const sources: (() => Promise<string>)[] = [];
  const answers: Record<string, () => Promise<Answer>> = {
    '/healthz': async () => json(200, { status: 'ok', process: name }),
    '/readyz': () => readiness(name, checks),
    '/metrics': async () => ({ status: 200, type: registry.contentType, body: await metricsText(registry, sources) }),
  };
  return {
    registry,
    check: (checkName, fn) => void checks.set(checkName, fn),
    addSource: (source) => void sources.push(source),
    listen: (at) => listen(answers, { ...at, who: `the metrics of ${name}`, setBy: 'BETTER_COMPUTE_METRICS_PORT' }),
  };
}

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

const json = (status: number, value: unknown): Answer => ({ status, type: 'application/json', body: `${JSON.stringify(value)}\n` });

async function readiness(name: string, checks: ReadonlyMap<string, Check>): Promise<Answer> {
  const results = await Promise.all([...checks].map(async ([checkName, fn]) => [checkName, await outcome(fn)] as const));
  const ready = results.every(([, result]) => result === 'ok');
  return json(ready ? 200 : 503, { status: ready ? 'ready' : 'not ready', process: name, checks: Object.fromEntries(results) });
}

async function outcome(fn: Check): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`no answer within ${checkWithinMs} ms`), checkWithinMs);
  });
  const run = async (): Promise<string> => {
    try {
      await fn();
      return 'ok';
    } catch (error) {
      return redactText(`${codeOf(error)}: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  try {
    return await Promise.race([run(), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function metricsText(registry: Registry, sources: readonly (() => Promise<string>)[]): Promise<string> {
  const more = await Promise.all(sources.map((source) => source().catch(() => '')));
  return [await registry.metrics(), ...more]
    .filter((text) => text !== '')
    .map((text) => (text.endsWith('\n') ? text : `${text}\n`))
    .join('');
}

async function listen(answers: Record<string, () => Promise<Answer>>, request: Parameters<typeof listenOn>[1]): Promise<HealthServer> {
  const server = createServer((incoming, response) => void respond(answers, incoming, response));
  const at = await listenOn(server, request);
  return {
    address: showAddress(at),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function respond(answers: Record<string, () => Promise<Answer>>, incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = (incoming.url ?? '').split('?', 1)[0] ?? '';
  const answer = Object.hasOwn(answers, path) && incoming.method === 'GET' ? answers[path] : undefined;
  const { status, type, body } = answer === undefined ? json(404, { status: 'unknown path', paths: Object.keys(answers) }) : await answer();
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(body);
}
