/**
 * Secrets by reference: the exchange between a machine and the broker, and the seal of those the deployment keeps itself (SEC).
 *
 * Invariants: an answer opens for one question of one machine, once, within its minute; a stored value opens under its own path and
 * version alone; no refusal holds a value.
 *
 * Not done here: who may have which secret (services/secrets/broker.ts), fetching from other stores, storage.
 */
export {
  createSecretRequest,
  openSecretRequest,
  openSecretResponse,
  type PendingSecret,
  refuseSecretRequest,
  type SecretQuestion,
  sealSecretResponse,
} from './exchange.ts';
export { openSecretValue, type SecretSeal, sealSecretValue } from './sealed-value.ts';
