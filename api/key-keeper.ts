/**
 * The key bundle that this process runs: opened at start, opened again whenever the store changes, published, and reported.
 *
 * Invariants
 *   - What is served is always a whole, opened bundle; one that does not open is reported and changes nothing.
 *   - A bundle counts as run only from the moment it is in use here; the heartbeat names exactly that one (H-02).
 *   - Every change is published before the next heartbeat; what fails is tried again with every beat.
 *   - A process with an older bundle than the deployment, or before a restored database, issues nothing and says why (H-07).
 */
import { ControlError, codeOf, isControlError } from '../domain/errors.ts';
import type { RotationTimes } from '../domain/rotation/gates.ts';
import { second } from '../domain/time.ts';
import type { Database } from '../drizzle/client.ts';
import { type BundleStore, bundleDigest, openBundle, type PkiBundle } from '../pki/bundle/index.ts';
import type { QuorumFields } from '../pki/trust/index.ts';
import type { Log } from '../runtime/log.ts';
import { hasUnpublishedSet } from '../services/approver-sets.ts';
import { assertFresh } from '../services/freshness.ts';
import { type ProcessHeartbeat, recordHeartbeat, removeProcess } from '../services/processes.ts';
import { settleAndPublish } from '../services/trust-publication.ts';

export interface KeyKeeperOptions {
  readonly db: Database;
  readonly store: BundleStore;
  readonly secret: string | undefined;
  readonly allowUnauthenticated: boolean;
  /** Refuses a bundle of another deployment; undefined: any. */
  readonly trustDomain: string | undefined;
  readonly floorOption: number;
  /** Who approves, as this process is told; null: nothing. */
  readonly approvers?: QuorumFields | null;
  readonly times: RotationTimes;
  readonly process: Pick<ProcessHeartbeat, 'id' | 'host' | 'pid' | 'version'>;
  readonly log: Log;
  now(): number;
}

export interface KeyKeeper {
  current(): PkiBundle;
  /** @throws UNAVAILABLE while this process must not issue anything */
  assertUsable(): void;
  /** The same, with the cause: for readiness. */
  problem(): Error | null;
  close(): Promise<void>;
}

const beatEveryMs = 10 * second;

/** Opens, publishes and reports once before it answers. @throws what opening the bundle throws, and UNAVAILABLE without the database */
export async function startKeyKeeper(options: KeyKeeperOptions): Promise<KeyKeeper> {
  const state: State = { bundle: await readBundle(options), published: null, problem: null };
  let running = Promise.resolve();
  const enqueue = (work: () => Promise<void>): Promise<void> => {
    running = running.then(work);
    return running;
  };
  await enqueue(() => beat(options, state));
  if (isControlError(state.problem) && state.problem.code === 'UNAVAILABLE') throw state.problem;
  const watch = options.store.watch(() => void enqueue(() => reload(options, state)));
  const timer = setInterval(() => void enqueue(() => beat(options, state)), beatEveryMs);
  return {
    current: () => state.bundle,
    problem: () => state.problem,
    assertUsable() {
      if (state.problem === null) return;
      throw new ControlError('UNAVAILABLE', 'this process may not issue anything now: its log says why', {
        details: { reason: 'not-usable' },
        cause: state.problem,
      });
    },
    async close() {
      watch.close();
      clearInterval(timer);
      await running;
      await removeProcess(options.db, options.process.id).catch(() => undefined);
    },
  };
}

interface State {
  bundle: PkiBundle;
  /** Digest of the bundle that was settled last. */
  published: string | null;
  problem: Error | null;
}

async function readBundle({ store, secret, allowUnauthenticated, trustDomain, approvers = null }: KeyKeeperOptions): Promise<PkiBundle> {
  const { text } = await store.read();
  const bundle = openBundle(text, { ...(secret === undefined ? {} : { secret }), allowUnauthenticated });
  if (approvers !== null && bundle.commandRootsById.size === 0) {
    throw new ControlError(
      'INVALID_CONFIG',
      'approvers are configured, but the key bundle has no command-signing root: nothing could be approved',
      {
        details: { reason: 'approvers-without-command-signing' },
      },
    );
  }
  if (trustDomain === undefined || trustDomain === bundle.trustDomain) return bundle;
  throw new ControlError('INVALID_CONFIG', `the key bundle belongs to ${bundle.trustDomain}, this deployment is ${trustDomain}`, {
    details: { reason: 'trust-domain' },
  });
}

async function reload(options: KeyKeeperOptions, state: State): Promise<void> {
  try {
    state.bundle = await readBundle(options);
    options.log.info({ generation: state.bundle.generation }, 'key bundle loaded');
  } catch (error) {
    options.log.error({ err: error }, 'the changed key bundle does not open; the one before stays in use');
    return;
  }
  await beat(options, state);
}

/** Judges, publishes what is not published yet, and reports. Never throws: the next beat tries again. */
async function beat(options: KeyKeeperOptions, state: State): Promise<void> {
  const { db, log } = options;
  const identity = { generation: state.bundle.generation, digest: bundleDigest(state.bundle) };
  try {
    await assertFresh(db, identity);
    // A set that approvers signed waits in the table until an api publishes it.
    if (state.published !== identity.digest || (await hasUnpublishedSet(db))) await publish(options, state, identity.digest);
    if (state.problem !== null) log.info({}, 'usable again');
    state.problem = null;
  } catch (error) {
    const problem = error instanceof Error ? error : new Error(String(error));
    // A database that is away for a moment is no verdict on the keys; whatever needs it fails by itself.
    if (codeOf(error) === 'UNAVAILABLE' && state.published !== null)
      return log.warn({ err: error }, 'the key bundle was not judged this time');
    if (state.problem?.message !== problem.message) log.error({ err: problem }, 'this process issues nothing until this is repaired');
    state.problem = problem;
  }
  const heartbeat = {
    ...options.process,
    kind: 'api' as const,
    bundleDigest: identity.digest,
    bundleGeneration: identity.generation,
    trustVersionSeen: null,
  };
  await recordHeartbeat(db, heartbeat).catch((error: unknown) => log.warn({ err: error }, 'heartbeat not recorded'));
}

async function publish(options: KeyKeeperOptions, state: State, digest: string): Promise<void> {
  const { db, floorOption, approvers = null, times, process, log, now } = options;
  const { bundle } = state;
  await settleAndPublish({ db, bundle, floorOption, approvers, overlapMs: times.overlapMs, processId: process.id, now: now(), log });
  state.published = digest;
}
