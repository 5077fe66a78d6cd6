/**
 * What must never leave this host, by value: everything secret that this command could read. A support bundle is cut by shape first
 * (runtime/log.ts), then by these values, and is not written at all when one of them is still in it.
 */
import type { KeyObject } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openBundle } from '../../pki/bundle/index.ts';
import { envNames } from '../../runtime/env-names.ts';
import { redactText } from '../../runtime/log.ts';
import type { Settings } from '../settings.ts';

/** Below this a value is too short to be looked for: it would be found everywhere. */
const shortest = 6;

/** Names that Temporal and PostgreSQL give to secrets; a file's path is none. */
const foreignSecrets = /^(TEMPORAL_|PG)\w*(KEY|KEY_DATA|PASSWORD|SECRET|TOKEN|AUTH)$/;

/** Every secret value of this deployment that is within reach, in each spelling in which it could be found. */
export function secretValues(settings: Settings, env: NodeJS.ProcessEnv, bundleText: string | null): string[] {
  const named = Object.entries(envNames).flatMap(([name, { secret }]) => (secret === true ? [env[name]] : []));
  const values = [
    ...named,
    ...Object.entries(env).flatMap(([name, value]) => (foreignSecrets.test(name) ? [value] : [])),
    settings.secret(),
    orNull(() => settings.bearer()),
    settings.temporalEnv()['BETTER_COMPUTE_CODEC_KEY'],
    ...passwordsOf(settings.databaseUrl()),
    ...keysOfBundle(bundleText, settings.secret()),
    ...keysOfFiles(settings.tlsFolder),
  ];
  return [...new Set(values.filter((value): value is string => typeof value === 'string' && value.length >= shortest))];
}

function orNull<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

function passwordsOf(url: string | null): string[] {
  const parsed = url !== null && URL.canParse(url) ? new URL(url) : null;
  if (parsed === null) return [];
  return [
    parsed.password,
    orNull(() => decodeURIComponent(parsed.password)) ?? '',
    new URLSearchParams(parsed.search).get('password') ?? '',
  ];
}

/** PKCS#8 in base64 (what a seal holds), every line of its PEM, and the private number itself. */
function keysOfBundle(text: string | null, secret: string | null): string[] {
  if (text === null) return [];
  const bundle = orNull(() => openBundle(text, { ...(secret === null ? {} : { secret }), allowUnauthenticated: true }));
  if (bundle === null) return [];
  const holders = [...Object.values(bundle), ...bundle.commandRootsById.values()] as unknown as readonly {
    readonly privateKey?: KeyObject;
  }[];
  return holders.flatMap((holder) => (holder?.privateKey === undefined ? [] : spellingsOf(holder.privateKey)));
}

function spellingsOf(key: KeyObject): string[] {
  const number = Buffer.from(key.export({ format: 'jwk' }).d ?? '', 'base64url');
  const der = key.export({ type: 'pkcs8', format: 'der' });
  const encodings = ['base64', 'base64url', 'hex'] as const;
  const pem = String(key.export({ type: 'pkcs8', format: 'pem' }));
  return [...encodings.flatMap((encoding) => [number.toString(encoding), der.toString(encoding)]), ...pemLines(pem)];
}

const pemLines = (pem: string): string[] => pem.split('\n').filter((line) => line.length > 20 && !line.startsWith('-'));

const keysOfFiles = (folder: string): string[] =>
  (orNull(() => readdirSync(folder)) ?? [])
    .filter((name) => name.endsWith('.key'))
    .flatMap((name) => pemLines(orNull(() => readFileSync(join(folder, name), 'utf8')) ?? ''));

export const cut = '[redacted]';

/** Every text of a JSON value without what looks like a secret, and without these values. */
export function withoutSecrets(value: unknown, secrets: readonly string[]): unknown {
  if (typeof value === 'string') return secrets.reduce((text, secret) => text.replaceAll(secret, cut), redactText(value));
  if (Array.isArray(value)) return value.map((item) => withoutSecrets(item, secrets));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, withoutSecrets(inner, secrets)]));
}
