/** The routes of secrets over the database (SEC-028). A value goes in, sealed; no port gives one back to a person. */
import { ControlError } from '../domain/errors.ts';
import { secretRef } from '../domain/secrets/reference.ts';
import type { Database } from '../drizzle/client.ts';
import * as store from '../services/secrets/store.ts';

export interface OperatorSecrets {
  /** @returns the version @throws INVALID_INPUT; UNSUPPORTED where the deployment keeps none */
  set(order: { readonly path: string; readonly value: Uint8Array; readonly actor: string }): Promise<number>;
  list(page: { readonly prefix: string; readonly after: string; readonly limit: number }): Promise<store.SecretView[]>;
  /** @throws NOT_FOUND, INVALID_INPUT */
  delete(order: { readonly path: string; readonly actor: string }): Promise<void>;
}

export interface OperatorSecretsOptions {
  readonly db: Database;
  /** BETTER_COMPUTE_SECRET; null: this deployment keeps no secrets of its own. */
  readonly secret: string | null;
  now(): number;
}

export const createOperatorSecrets = ({ db, secret, now }: OperatorSecretsOptions): OperatorSecrets => ({
  async set(order) {
    if (secret === null) throw keepsNone();
    return db.transaction((tx) => store.setSecret(tx, { ...order, secret, now: now() }));
  },
  list: (page) => store.listSecrets(db, page),
  async delete(order) {
    if (await db.transaction((tx) => store.deleteSecret(tx, { ...order, now: now() }))) return;
    throw new ControlError('NOT_FOUND', `there is no ${secretRef(order.path)}`, {
      details: { reason: 'unknown-secret', path: order.path, hint: 'better-compute secrets list' },
    });
  },
});

const keepsNone = (): ControlError =>
  new ControlError('UNSUPPORTED', 'this deployment keeps no secrets of its own: BETTER_COMPUTE_SECRET is not set for the api', {
    details: { reason: 'no-deployment-secret' },
  });
