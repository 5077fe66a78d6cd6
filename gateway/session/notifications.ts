/** Pokes from the database to the sessions of a gateway; after every LISTEN one sweep reads what was missed (drizzle/listener.ts). */
import type { Client } from 'pg';
import { DatabaseListener } from '../../drizzle/listener.ts';
import type { Scheduler } from '../scheduler.ts';

const pokeChannel = 'bc_gateway';
const trustChannel = 'bc_trust';
const revocationChannel = 'bc_revocation';
const specChannel = 'bc_spec';

export interface NotificationsOptions {
  readonly gatewayId: string;
  readonly scheduler: Scheduler;
  /** A connection outside every pool. */
  connect(): Promise<Client>;
  /** These nodes have something new; 'sweep': any may have. */
  onPoke(nodeIds: readonly string[] | 'sweep'): void;
  onTrust(): void;
  onRevocation(): void;
  /** The desired state of these nodes changed; 'sweep': of any. */
  onSpecs(nodeIds: readonly string[] | 'sweep'): void;
  onLost(error: unknown): void;
}

/** Anything that is not a list of ids, a cut payload too, means: look everywhere (B68). */
export function parsePoke(payload: string | undefined): readonly string[] | 'sweep' {
  try {
    const parsed: unknown = JSON.parse(payload ?? '');
    return Array.isArray(parsed) && parsed.every((id) => typeof id === 'string') ? parsed : 'sweep';
  } catch {
    return 'sweep';
  }
}

/** Not started yet. */
export function createNotifications(options: NotificationsOptions): DatabaseListener {
  const heard: Readonly<Record<string, (payload: string | undefined) => void>> = {
    [pokeChannel]: (payload) => options.onPoke(parsePoke(payload)),
    [trustChannel]: () => options.onTrust(),
    [revocationChannel]: () => options.onRevocation(),
    [specChannel]: (payload) => options.onSpecs(parsePoke(payload)),
  };
  return new DatabaseListener({
    name: options.gatewayId,
    channels: Object.keys(heard),
    after: options.scheduler.after,
    connect: () => options.connect(),
    onNotification: (channel, payload) => heard[channel]?.(payload),
    // What was said meanwhile is read: no payload means everything.
    onListening: () => {
      for (const hear of Object.values(heard)) hear(undefined);
    },
    onLost: (error) => options.onLost(error),
  });
}
