/**
 * The ports of a site whose calls are lost, each of them once: as a worker that is killed before a call, or behind it before anybody heard
 * of its effect. Whatever an activity does between two calls is lost with them, so these are all the points at which a kill can matter.
 */
import { ApplicationFailure } from '@temporalio/common';
import type { MetalWorld } from './metal-world.ts';

export type LostAt = 'before' | 'after';

export interface Losing {
  readonly ports: Pick<MetalWorld, 'runs' | 'keys' | 'sites' | 'answers' | 'commands' | 'queue' | 'watch' | 'now' | 'words'>;
  /** What was lost: port, method, and of what. */
  readonly lost: ReadonlySet<string>;
}

export function losing(world: MetalWorld, at: LostAt): Losing {
  const lost = new Set<string>();
  const port = <P extends object>(name: string, calls: P): P =>
    Object.fromEntries(
      Object.entries(calls).map(([method, call]: [string, (...args: unknown[]) => Promise<unknown>]) => [
        method,
        async (...args: unknown[]) => {
          const key = `${name}.${method} ${subjectOf(args[0])}`;
          const isFirst = !lost.has(key);
          lost.add(key);
          if (isFirst && at === 'before') throw killed(`before ${key}`);
          const answer = await call(...args);
          if (isFirst) throw killed(`behind ${key}`);
          return answer;
        },
      ]),
    ) as P;
  const { runs, keys, sites, answers, commands, queue, watch, words } = world;
  return {
    lost,
    ports: {
      runs: port('runs', runs),
      keys: port('keys', keys),
      sites: port('sites', sites),
      answers: port('answers', answers),
      commands: port('commands', commands),
      queue: port('queue', queue),
      watch,
      words,
      now: world.now,
    },
  };
}

/** Tried again at once: what the pause between attempts is has no part in it. */
const killed = (where: string): ApplicationFailure => ApplicationFailure.create({ message: `killed ${where}`, nextRetryDelay: 10 });

/** Ids and steps: without what every attempt makes anew. */
function subjectOf(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(subjectOf).join();
  if (typeof value !== 'object' || value === null) return '';
  const { id, commandId, runId, machineId, step, state, attempt, kind } = value as Record<string, unknown>;
  return [id, commandId, runId, machineId, step, state, attempt, kind].join(' ');
}
