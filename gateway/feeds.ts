/** What a gateway follows in its database besides the log of commands, put together over its sessions. */
import type { DatabaseListener } from '../drizzle/listener.ts';
import type { GatewayOptions } from './gateway.ts';
import type { GatewayLog } from './log.ts';
import type { GatewayMetrics } from './metrics.ts';
import { RevocationFeed } from './revocation/feed.ts';
import type { Scheduler } from './scheduler.ts';
import { createNotifications } from './session/notifications.ts';
import type { Sessions } from './session/sessions.ts';
import { SpecFeed } from './session/spec-feed.ts';
import type { SessionStore } from './session/store.ts';

interface FeedOptions {
  readonly store: SessionStore;
  readonly log: GatewayLog;
  readonly metrics: GatewayMetrics;
}

interface Followed {
  readonly scheduler: Scheduler;
  readonly sessions: Sessions;
  readonly revocations: RevocationFeed;
  readonly specs: SpecFeed;
}

export const createRevocationFeed = (
  sessions: Sessions,
  { store, scheduler, log, metrics }: FeedOptions & { readonly scheduler: Scheduler },
): RevocationFeed =>
  new RevocationFeed({
    scheduler,
    readAll: () => sessions.database.watch(() => store.readAllRevoked()),
    readAfter: (seq) => sessions.database.watch(() => store.readRevocationsAfter(seq)),
    onRevoked: (list) => sessions.onRevoked(list),
    onError: (error) => {
      metrics.databaseFailed('revocations');
      log.warn({ err: error }, 'the revocation feed was not answered');
    },
  });

export const createSpecFeed = (sessions: Sessions, { store, log, metrics }: FeedOptions): SpecFeed =>
  new SpecFeed({
    sessions: () => sessions.current(),
    find: (nodeId) => sessions.find(nodeId),
    read: (held) => sessions.database.watch(() => store.findNewerStates(held)),
    onError: (error) => {
      metrics.databaseFailed('desired-state');
      log.warn({ err: error }, 'the desired state of nodes was not read');
    },
  });

export function followDatabase(
  { connectListener, gatewayId }: GatewayOptions,
  { scheduler, sessions, revocations, specs, log, metrics }: Followed & { readonly log: GatewayLog; readonly metrics: GatewayMetrics },
): DatabaseListener | null {
  if (connectListener === undefined) return null;
  return createNotifications({
    gatewayId,
    scheduler,
    connect: connectListener,
    onPoke: (nodeIds) => {
      metrics.pokeHeard();
      sessions.poke(nodeIds);
    },
    onTrust: () => void sessions.refreshTrust(),
    onRevocation: () => void revocations.poll(),
    onSpecs: (nodeIds) => specs.look(nodeIds),
    onLost: (error) => {
      metrics.listenLost();
      log.warn({ err: error }, 'the listening connection was lost');
    },
  });
}
