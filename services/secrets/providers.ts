/**
 * Where secrets come from (SEC-028), one provider for each scheme. A provider answers undefined for what it does not have; what it throws
 * means that nothing can be said now. Which reference a machine may name is not its question.
 *
 *   secret://  rows of the deployment, sealed (store.ts)
 *   vault://   HashiCorp Vault or OpenBao, KV version 2, over HTTPS, as one client with one token; http:// to the own machine alone
 *   env://     variables of the api's own environment, by an allow-list of names: the process's other variables are nobody's business
 */
import { ControlError } from '../../domain/errors.ts';
import { maxSecretBytes, parseSecretReference, type SecretReference } from '../../domain/secrets/reference.ts';
import { second } from '../../domain/time.ts';
import type { Executor } from '../../drizzle/client.ts';
import { readSecret } from './store.ts';

export interface VaultSettings {
  /** https, or http of the loopback. */
  readonly url: string;
  readonly token: string;
  /** Of Vault Enterprise. */
  readonly namespace?: string;
}

export interface SecretSettings {
  /** BETTER_COMPUTE_SECRET; null: this deployment keeps no secrets of its own. */
  readonly secret: string | null;
  /** null: there is none. */
  readonly vault: VaultSettings | null;
  /** Names that may be read, and what they are read from. */
  readonly environment: { readonly allowed: readonly string[]; readonly values: Readonly<Record<string, string | undefined>> };
}

/** @returns undefined when there is no such secret, or nobody here knows the scheme @throws when it cannot be said now */
export type ResolveSecret = (ref: string) => Promise<Uint8Array | undefined>;

type Providers = {
  readonly [S in SecretReference['scheme']]: (reference: Extract<SecretReference, { scheme: S }>) => Promise<Uint8Array | undefined>;
};

export function createSecretResolver(db: Executor, settings: SecretSettings): ResolveSecret {
  const providers: Providers = {
    secret: async ({ path }) => {
      const { secret } = settings;
      return secret === null ? undefined : (await readSecret(db, { path, secret }))?.value;
    },
    vault: async (reference) => (settings.vault === null ? undefined : readVault(settings.vault, reference)),
    env: async ({ name }) => readEnvironment(settings.environment, name),
  };
  return async (ref) => {
    const reference = parseSecretReference(ref);
    if (reference === undefined) return undefined;
    const provide = providers[reference.scheme] as (one: SecretReference) => Promise<Uint8Array | undefined>;
    const value = await provide(reference);
    if (value === undefined || (value.length > 0 && value.length <= maxSecretBytes)) return value;
    throw unavailable(`${ref} has ${value.length} bytes, not 1 to ${maxSecretBytes}`);
  };
}

function readEnvironment({ allowed, values }: SecretSettings['environment'], name: string): Uint8Array | undefined {
  const value = allowed.includes(name) ? values[name] : undefined;
  return value === undefined ? undefined : Buffer.from(value, 'utf8');
}

const answerWithinMs = 5 * second;
const maxAnswerBytes = 256 * 1024;

/** @throws UNAVAILABLE with Vault's status, never with what it answered */
async function readVault(
  { url, token, namespace }: VaultSettings,
  { mount, path, field }: Extract<SecretReference, { scheme: 'vault' }>,
): Promise<Uint8Array | undefined> {
  const where = new URL(`/v1/${mount}/data/${path}`, url);
  const headers = {
    'X-Vault-Token': token,
    'X-Vault-Request': 'true',
    ...(namespace === undefined ? {} : { 'X-Vault-Namespace': namespace }),
  };
  const signal = AbortSignal.timeout(answerWithinMs);
  const answer = await fetch(where, { headers, redirect: 'error', signal }).catch((cause: unknown) => {
    throw unavailable(`vault does not answer at ${where.host}`, cause);
  });
  // A deleted version is answered 404 too, with a body that says when.
  if (answer.status === 404) return discard(answer);
  if (answer.status !== 200) {
    await discard(answer);
    throw unavailable(`vault answered ${answer.status} for ${where.pathname}`);
  }
  return fieldOf(await readBounded(answer), field);
}

async function discard(answer: Response): Promise<undefined> {
  await answer.body?.cancel();
  return undefined;
}

async function readBounded(answer: Response): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of (answer.body ?? []) as AsyncIterable<Uint8Array>) {
    size += part.length;
    if (size > maxAnswerBytes) throw unavailable(`vault answered more than ${maxAnswerBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** A field that is not text has no one form as bytes: it is as good as none. */
function fieldOf(body: Buffer, field: string): Uint8Array | undefined {
  const data = memberOf(memberOf(parseJson(body), 'data'), 'data');
  const value = memberOf(data, field);
  return typeof value === 'string' ? Buffer.from(value, 'utf8') : undefined;
}

const memberOf = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;

function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw unavailable('vault answered something that is not JSON');
  }
}

const unavailable = (message: string, cause?: unknown): ControlError =>
  new ControlError('UNAVAILABLE', message, { details: { reason: 'secret-provider' }, ...(cause === undefined ? {} : { cause }) });
