/** The engines of a local stack, or the ones the environment names instead; started again when they end by themselves. */
import { connect } from 'node:net';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { startPostgres } from '../../scripts/engines/postgres.mjs';
import { startTemporal } from '../../scripts/engines/temporal.mjs';
import { SetupError } from '../../scripts/lib/failure.mjs';
import { searchAttributes } from '../../temporal.config.ts';
import { createBackoff } from './backoff.ts';
import type { StackHome } from './home.ts';
import type { Ports } from './ports.ts';

/** What every engine of scripts/engines answers with. */
interface Running {
  readonly pid: number;
  readonly exited: Promise<number>;
  stop(): Promise<void>;
}

export interface Engine<R> {
  readonly first: R;
  pid(): number;
  stop(): Promise<void>;
}

type Say = (line: string) => void;

/** null: BETTER_COMPUTE_DATABASE_URL names the database. */
export async function startDatabase({ home, env, ports, say }: EngineOptions): Promise<{ url: string; engine: Engine<Running> | null }> {
  const given = env['BETTER_COMPUTE_DATABASE_URL'];
  if (given !== undefined && given !== '') return { url: given, engine: null };
  const engine = await startEngine('PostgreSQL', () => startPostgres({ home: home.root, port: ports.postgres }), say);
  return { url: engine.first.url, engine };
}

export interface EngineOptions {
  readonly home: StackHome;
  readonly env: NodeJS.ProcessEnv;
  readonly ports: Ports;
  readonly say: Say;
}

export interface TemporalEngine {
  readonly address: string;
  /** null when Temporal is not ours: its UI is where its operator put it. */
  readonly uiUrl: string | null;
  readonly engine: Engine<Running> | null;
}

export async function startLocalTemporal(
  { home, env, ports, say }: EngineOptions,
  codecEndpoint: string | undefined,
): Promise<TemporalEngine> {
  const given = env['TEMPORAL_ADDRESS'];
  if (given !== undefined && given !== '') {
    await assertReachable(given);
    return { address: given, uiUrl: null, engine: null };
  }
  const options = {
    home: home.root,
    port: ports.temporal,
    uiPort: ports.temporalUi,
    searchAttributes,
    ...(codecEndpoint === undefined ? {} : { codecEndpoint }),
  };
  const engine = await startEngine('Temporal', () => startTemporal(options), say);
  return { address: engine.first.address, uiUrl: engine.first.uiUrl, engine };
}

async function startEngine<R extends Running>(name: string, start: () => Promise<R>, say: Say): Promise<Engine<R>> {
  const first = await start().catch(toControlError);
  const state: { current: Running | null; stopping: boolean; wake?: () => void } = { current: first, stopping: false };
  const keep = async (): Promise<void> => {
    const backoff = createBackoff();
    let since = performance.now();
    while (!state.stopping) {
      const how = state.current === null ? 'did not start' : `ended by itself (exit code ${await state.current.exited})`;
      state.current = null;
      if (state.stopping) return;
      const waitMs = backoff.next(performance.now() - since);
      say(`${name} ${how}; starting it again in ${waitMs / second} s`);
      await new Promise<void>((resolve) => {
        state.wake = resolve;
        setTimeout(resolve, waitMs).unref();
      });
      if (state.stopping) return;
      since = performance.now();
      state.current = await start().catch((error: unknown) => failedStart(error, say));
      if (state.current !== null) say(`${name} is back (pid ${state.current.pid})`);
    }
  };
  const kept = keep();
  return {
    first,
    pid: () => state.current?.pid ?? 0,
    stop: async () => {
      state.stopping = true;
      state.wake?.();
      await state.current?.stop();
      await kept;
    },
  };
}

function failedStart(error: unknown, say: Say): null {
  say(error instanceof Error ? error.message : String(error));
  return null;
}

/** What the scripts throw, in the words of the error table. */
function toControlError(cause: unknown): never {
  if (!(cause instanceof SetupError)) throw cause;
  const code = /^port .* (is taken|may not be opened)/.test(cause.message) ? 'PORT_TAKEN' : 'UNAVAILABLE';
  throw new ControlError(code, cause.message, { details: { reason: 'engine', hint: cause.hint }, cause });
}

const reachableWithinMs = 5 * second;

function assertReachable(address: string): Promise<void> {
  const at = address.lastIndexOf(':');
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address.slice(0, at), port: Number(address.slice(at + 1)), timeout: reachableWithinMs });
    const refuse = (why: string): void => {
      socket.destroy();
      reject(
        new ControlError('UNAVAILABLE', `Temporal at ${address} does not answer (${why}); TEMPORAL_ADDRESS names it`, {
          details: { reason: 'temporal-unreachable' },
        }),
      );
    };
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
    socket.once('timeout', () => refuse(`nothing within ${reachableWithinMs / second} s`));
    socket.once('error', (error: NodeJS.ErrnoException) => refuse(error.code ?? error.message));
  });
}
