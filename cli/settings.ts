/**
 * Where a command finds the deployment: the environment first, then what the running stack wrote into its state folder
 * (`run/<process>.json`, `operator.token`). Read when a command needs it, never before.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ControlError } from '../domain/errors.ts';
import { deriveCodecKey } from '../runtime/codec-key.ts';

export interface Settings {
  readonly home: string;
  readonly bundlePath: string;
  /** BETTER_COMPUTE_PKI=database: the bundle is a row, not a file. */
  readonly bundleInDatabase: boolean;
  readonly tlsFolder: string;
  /** @throws UNAVAILABLE when neither the environment nor a running stack names one */
  apiUrl(): string;
  /** @throws UNAUTHENTICATED when there is none */
  bearer(): string;
  /** What unseals the key bundle; null when neither the environment nor the state folder knows it. */
  secret(): string | null;
  /** null when neither the environment nor the state folder knows one. */
  databaseUrl(): string | null;
  /** The environment with what the running stack says about Temporal and its codec laid under it. */
  temporalEnv(): NodeJS.ProcessEnv;
}

export function createSettings(env: NodeJS.ProcessEnv): Settings {
  const home = resolve(env['BETTER_COMPUTE_HOME'] || '.better-compute');
  const said = (): Record<string, unknown> => readRunFolder(join(home, 'run'));
  const named = (name: string): string | null => {
    const value = said()[name];
    return typeof value === 'string' && value !== '' ? value : null;
  };
  const secret = (): string | null => env['BETTER_COMPUTE_SECRET'] || readFirst(join(home, 'secret'));
  return {
    home,
    bundlePath: resolve(env['BETTER_COMPUTE_PKI'] || join(home, 'pki.json')),
    bundleInDatabase: env['BETTER_COMPUTE_PKI'] === 'database',
    tlsFolder: resolve(env['BETTER_COMPUTE_TLS'] || join(home, 'tls')),
    apiUrl: () => env['BETTER_COMPUTE_API_URL'] || toUrl(named('api')) || refuseApi(home),
    bearer: () => readBearer(env, home),
    secret,
    databaseUrl: () => env['BETTER_COMPUTE_DATABASE_URL'] || named('database'),
    temporalEnv: () => {
      const address = named('temporal');
      const key = codecKeyOf(env, secret());
      return {
        ...(address === null ? {} : { TEMPORAL_ADDRESS: address }),
        ...(key === null ? {} : { BETTER_COMPUTE_CODEC_KEY: key }),
        ...env,
      };
    },
  };
}

/** null: payloads are plain here, or their key is not ours to know. */
const codecKeyOf = (env: NodeJS.ProcessEnv, secret: string | null): string | null =>
  env['BETTER_COMPUTE_CODEC'] === 'off' || secret === null ? null : deriveCodecKey(secret);

const toUrl = (address: string | null): string | null => (address === null || /^https?:/.test(address) ? address : `http://${address}`);

function refuseApi(home: string): never {
  throw new ControlError('UNAVAILABLE', `no operator API is known: ${join(home, 'run')} names none and BETTER_COMPUTE_API_URL is not set`, {
    details: { reason: 'no-api', hint: 'start the stack with better-compute start, or set BETTER_COMPUTE_API_URL' },
  });
}

function readBearer(env: NodeJS.ProcessEnv, home: string): string {
  const given = env['BETTER_COMPUTE_OPERATOR_TOKEN'];
  if (given !== undefined && given !== '') return given;
  const path = env['BETTER_COMPUTE_OPERATOR_TOKEN_FILE'] || join(home, 'operator.token');
  const found = readFirst(path);
  if (found !== null) return found;
  throw new ControlError(
    'UNAUTHENTICATED',
    `there is no operator token: ${path} cannot be read and BETTER_COMPUTE_OPERATOR_TOKEN is not set`,
    {
      details: { reason: 'no-operator-token', hint: 'run on the host of the stack, or set BETTER_COMPUTE_OPERATOR_TOKEN' },
    },
  );
}

function readFirst(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim() || null;
  } catch {
    return null;
  }
}

/** Name → address over every file of the folder. A file that does not parse is another program's, or half written. */
function readRunFolder(folder: string): Record<string, unknown> {
  if (!existsSync(folder)) return {};
  const found: Record<string, unknown> = {};
  for (const name of readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .sort()) {
    try {
      const file = JSON.parse(readFileSync(join(folder, name), 'utf8')) as { addresses?: unknown };
      if (typeof file.addresses === 'object') Object.assign(found, file.addresses);
    } catch {
      // Skipped on purpose, see above.
    }
  }
  return found;
}
