/**
 * One file with what somebody needs who helps from afar: the findings, versions, settings by name, the pins, what the database counts,
 * the ends of the logs. It says what is there, not what is in it: a setting is shown by an allowlist, keys by their pins, files by
 * name, size and mode. Every source may be down; then its place says so.
 *
 * Invariant: no secret is in it. Three nets: nothing secret is collected; what looks like a secret is cut (runtime/log.ts); every
 * secret value that this host knows is cut by value, and the file is refused if one is left all the same.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { authenticateBundle, describePins, readPublicBundle } from '../../pki/bundle/index.ts';
import { envNames } from '../../runtime/env-names.ts';
import { getTrust, listRotations } from '../../services/operator-reads.ts';
import { listProcesses } from '../../services/processes.ts';
import type { Settings } from '../settings.ts';
import { type Finding, messageOf } from './finding.ts';
import { secretValues, withoutSecrets } from './secrets.ts';

export interface SupportOptions {
  readonly settings: Settings;
  readonly env: NodeJS.ProcessEnv;
  readonly pki: string | null;
  readonly findings: readonly Finding[];
  readonly program: { readonly version: string; readonly node: string; readonly platform: string; readonly arch: string };
  readonly now: number;
}

const format = 'better-compute-support';
const logLines = 300;
/** Of each log, from its end: enough for the lines above. */
const logBytes = 256 * 1024;
const maxFiles = 500;

/** @throws INTERNAL (secret-left) when a known secret would be in the file */
export async function createSupportBundle(options: SupportOptions): Promise<string> {
  const { settings, env, findings, program, now } = options;
  const bundleText = orNull(() => readFileSync(options.pki ?? settings.bundlePath, 'utf8'));
  const collected = {
    format,
    version: 1,
    madeAt: showInstant(now),
    program,
    findings,
    settings: settingsOf(env),
    keys: keysOf(bundleText, settings.secret()),
    database: await databaseOf(settings, now),
    files: filesIn(settings.home),
    logs: logsIn(join(settings.home, 'logs')),
  };
  const secrets = secretValues(settings, env, bundleText);
  const text = `${JSON.stringify(withoutSecrets(collected, secrets), jsonSafe, 2)}\n`;
  const left = secrets.filter((secret) => text.includes(secret) || text.includes(JSON.stringify(secret).slice(1, -1)));
  if (left.length === 0) return text;
  throw new ControlError('INTERNAL', `the support bundle would hold ${left.length} secret value(s): it was not written`, {
    details: { reason: 'secret-left' },
  });
}

const jsonSafe = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? value.toString() : value);

function orNull<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

/** Values of names that this system knows and that are no secret; of everything else only that it is set. */
function settingsOf(env: NodeJS.ProcessEnv): Record<string, string> {
  const names = Object.keys(env).filter((name) => /^(BETTER_COMPUTE_|TEMPORAL_)/.test(name));
  return Object.fromEntries(
    names.sort().map((name) => {
      const known = Object.hasOwn(envNames, name) ? envNames[name] : undefined;
      const isShown = known !== undefined && known.secret !== true;
      return [name, isShown || name === 'TEMPORAL_ADDRESS' || name === 'TEMPORAL_NAMESPACE' ? (env[name] ?? '') : '(set)'];
    }),
  );
}

function keysOf(text: string | null, secret: string | null): unknown {
  if (text === null) return { problem: 'the key bundle cannot be read' };
  try {
    const authenticated = secret !== null && authenticateBundle(text, secret).authenticated;
    return describePins(readPublicBundle(text), authenticated);
  } catch (cause) {
    return { problem: messageOf(cause) };
  }
}

async function databaseOf(settings: Settings, now: number): Promise<unknown> {
  const url = settings.databaseUrl();
  if (url === null) return { problem: 'no database is known' };
  const db = createDatabase(url, { applicationName: 'better-compute support', max: 2, connectTimeoutMs: 3_000, statementTimeoutMs: 5_000 });
  try {
    const ask = async (name: string, work: () => Promise<unknown>): Promise<[string, unknown]> => [
      name,
      await work().catch((cause: unknown) => ({ problem: messageOf(cause) })),
    ];
    const answers = [
      await ask('counts', () => countsOf(db)),
      await ask('trust', () => getTrust(db, now)),
      await ask('processes', () => listProcesses(db)),
      await ask('rotations', () => listRotations(db, 5)),
      await ask('migrations', () => db.query({ text: 'select name from schema_migrations order by name' })),
    ];
    return Object.fromEntries(answers);
  } finally {
    await db.close();
  }
}

/** How many of what, never who or what it says. */
async function countsOf(db: Database): Promise<unknown> {
  const [row] = await db.query({
    text: `select (select json_object_agg(state, n) from (select state, count(*) n from nodes group by state) s) as nodes,
                  (select count(*) from node_sessions where ended_at is null) as sessions,
                  (select json_object_agg(state, n) from (select state, count(*) n from node_commands group by state) c) as commands,
                  (select count(*) from completion_outbox) as outbox,
                  (select count(*) from audit_events) as audit_events,
                  (select count(*) from audit_checkpoints) as audit_checkpoints`,
  });
  return row ?? null;
}

/** Names, sizes and modes: the contents stay. */
function filesIn(home: string): unknown[] {
  const names = orNull(() => readdirSync(home, { recursive: true, encoding: 'utf8' })) ?? [];
  const shown = names.filter((name) => !/^(postgres|temporal)\b.+/.test(name)).sort();
  return shown.slice(0, maxFiles).flatMap((name) => {
    const stat = orNull(() => statSync(join(home, name)));
    return stat === null || !stat.isFile() ? [] : [{ name, size: stat.size, mode: (stat.mode & 0o777).toString(8).padStart(4, '0') }];
  });
}

function logsIn(folder: string): Record<string, string[]> {
  const names = (orNull(() => readdirSync(folder)) ?? []).filter((name) => name.endsWith('.log')).sort();
  return Object.fromEntries(names.map((name) => [name, endOf(join(folder, name))]));
}

function endOf(path: string): string[] {
  const text = orNull(() => readFileSync(path)) ?? Buffer.alloc(0);
  return text
    .subarray(-logBytes)
    .toString('utf8')
    .split('\n')
    .slice(-logLines - 1);
}
