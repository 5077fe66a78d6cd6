/**
 * The deployment's own secrets (SEC-028): every version sealed, the newest one read, none ever changed. What a run of the control plane
 * makes for itself (boot tokens, join strings) it deletes when it ends.
 */

import { ControlError } from '../../domain/errors.ts';
import { isSecretPath, maxSecretPathLength } from '../../domain/secrets/reference.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { openSecretValue, sealSecretValue } from '../../pki/secrets/index.ts';
import { appendAudit } from '../audit.ts';

export interface SecretView {
  readonly path: string;
  readonly version: number;
  readonly createdBy: string;
  readonly createdAt: number;
}

export interface SetSecretOptions {
  readonly path: string;
  readonly value: Uint8Array;
  /** BETTER_COMPUTE_SECRET. */
  readonly secret: string;
  readonly actor: string;
  readonly now: number;
}

const lockPath = { name: 'secrets-lock', text: `select pg_advisory_xact_lock(hashtextextended('secret/' || $1, 0))` };
const newest = { name: 'secrets-newest', text: 'select coalesce(max(version), 0) as version from secrets where path = $1' };
const insert = {
  name: 'secrets-insert',
  text: 'insert into secrets (path, version, sealed, created_by, created_at) values ($1, $2, $3, $4, $5)',
};

/**
 * Keeps a value as the next version, in a transaction of the caller's.
 *
 * @returns the version
 * @throws INVALID_INPUT for a path or a value that cannot be one; MISSING_ENV
 */
export async function setSecret(tx: Executor, { path, value, secret, actor, now }: SetSecretOptions): Promise<number> {
  assertPath(path);
  await tx.query(lockPath, [path]);
  const [row] = await tx.query<{ version: number }>(newest, [path]);
  const version = (row?.version ?? 0) + 1;
  await tx.query(insert, [path, version, sealSecretValue(value, { secret, path, version }), actor, instant(now)]);
  await appendAudit(tx, { key: `secret/${path}/${version}`, actor, action: 'secret.set', subject: path, details: { version } }, now);
  return version;
}

function assertPath(path: string): void {
  if (isSecretPath(path)) return;
  throw new ControlError(
    'INVALID_INPUT',
    `"${path.slice(0, 80)}" is no path of a secret: 1 to 8 parts of letters, digits, ".", "_" and "-" between slashes, ${maxSecretPathLength} characters at most`,
    { details: { reason: 'secret-path' } },
  );
}

const read = { name: 'secrets-read', text: 'select version, sealed from secrets where path = $1 order by version desc limit 1' };

/** The newest value; undefined when there is none, or it was deleted. @throws INVALID_CONFIG (secret-seal) */
export async function readSecret(
  db: Executor,
  { path, secret }: Pick<SetSecretOptions, 'path' | 'secret'>,
): Promise<{ readonly value: Uint8Array; readonly version: number } | undefined> {
  const [row] = await db.query<{ version: number; sealed: Uint8Array | null }>(read, [path]);
  if (row?.sealed == null) return undefined;
  return { value: openSecretValue(row.sealed, { secret, path, version: row.version }), version: row.version };
}

const list = {
  name: 'secrets-list',
  text: `select path, version, created_by as "createdBy", created_at as "createdAt" from (
           select distinct on (path) path, version, sealed, created_by, created_at from secrets
           where starts_with(path, $1) and path > $2 order by path, version desc) as newest
         where sealed is not null order by path limit $3`,
};

/** Paths and versions, never values. */
export const listSecrets = (
  db: Executor,
  { prefix = '', after = '', limit }: { readonly prefix?: string; readonly after?: string; readonly limit: number },
): Promise<SecretView[]> => db.query<SecretView>(list, [prefix, after, limit]);

const forget = {
  name: 'secrets-forget',
  text: 'update secrets set sealed = null where path = $1 and sealed is not null returning version',
};

/** Forgets every version. @returns false when there was none @throws INVALID_INPUT */
export async function deleteSecret(tx: Executor, { path, actor, now }: Pick<SetSecretOptions, 'path' | 'actor' | 'now'>): Promise<boolean> {
  assertPath(path);
  await tx.query(lockPath, [path]);
  const versions = (await tx.query<{ version: number }>(forget, [path])).map(({ version }) => version);
  if (versions.length === 0) return false;
  const details = { versions: versions.length };
  await appendAudit(
    tx,
    { key: `secret-deleted/${path}/${Math.max(...versions)}`, actor, action: 'secret.delete', subject: path, details },
    now,
  );
  return true;
}
