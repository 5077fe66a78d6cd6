/** Where the api takes secrets from (SEC-028), from its environment. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import type { SecretSettings, VaultSettings } from '../services/secrets/providers.ts';

const optional = z.string().min(1).optional();

export const secretEnv = {
  BETTER_COMPUTE_VAULT_URL: optional,
  BETTER_COMPUTE_VAULT_TOKEN_FILE: optional,
  BETTER_COMPUTE_VAULT_NAMESPACE: optional,
  BETTER_COMPUTE_SECRET_ENV: z.string().default(''),
};

export interface SecretEnvironment {
  readonly BETTER_COMPUTE_SECRET?: string | undefined;
  readonly BETTER_COMPUTE_VAULT_URL?: string | undefined;
  readonly BETTER_COMPUTE_VAULT_TOKEN_FILE?: string | undefined;
  readonly BETTER_COMPUTE_VAULT_NAMESPACE?: string | undefined;
  readonly BETTER_COMPUTE_SECRET_ENV: string;
}

/** @throws INVALID_CONFIG or MISSING_ENV naming the variable */
export function secretSettingsOf(parsed: SecretEnvironment, values: NodeJS.ProcessEnv): SecretSettings {
  return {
    secret: parsed.BETTER_COMPUTE_SECRET ?? null,
    vault: vaultOf(parsed),
    environment: { allowed: allowedNames(parsed.BETTER_COMPUTE_SECRET_ENV), values },
  };
}

const namePattern = /^[A-Z_][A-Z0-9_]{0,127}$/;

/** Our own variables are keys of the deployment: no list of an operator's lets a machine have one. */
function allowedNames(text: string): string[] {
  const names = text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  const bad = names.find((name) => !namePattern.test(name) || name.startsWith('BETTER_COMPUTE_'));
  if (bad === undefined) return names;
  throw invalid('BETTER_COMPUTE_SECRET_ENV', `names ${bad.slice(0, 80)}: upper-case names only, and none that starts with BETTER_COMPUTE_`);
}

function vaultOf({ BETTER_COMPUTE_VAULT_URL: url, ...rest }: SecretEnvironment): VaultSettings | null {
  const { BETTER_COMPUTE_VAULT_TOKEN_FILE: file, BETTER_COMPUTE_VAULT_NAMESPACE: namespace } = rest;
  if (url === undefined && file === undefined) return null;
  if (url === undefined || file === undefined) {
    const missing = url === undefined ? 'BETTER_COMPUTE_VAULT_URL' : 'BETTER_COMPUTE_VAULT_TOKEN_FILE';
    throw new ControlError('MISSING_ENV', `${missing} must be set beside the other BETTER_COMPUTE_VAULT_ names`, {
      details: { reason: 'environment' },
    });
  }
  assertVaultUrl(url);
  return { url, token: readToken(file), ...(namespace === undefined ? {} : { namespace }) };
}

/** The token and every value travel there in the clear of the connection. */
function assertVaultUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isLocal = url?.protocol === 'http:' && ['127.0.0.1', '[::1]', 'localhost'].includes(url.hostname);
  if (url?.protocol === 'https:' || isLocal) return;
  throw invalid('BETTER_COMPUTE_VAULT_URL', `"${text.slice(0, 80)}" must be an https URL, or an http one of this machine`);
}

function readToken(path: string): string {
  try {
    const token = readFileSync(path, 'utf8').trim();
    if (/^[\x21-\x7e]{1,4096}$/.test(token)) return token;
  } catch (cause) {
    throw invalid('BETTER_COMPUTE_VAULT_TOKEN_FILE', `${path} cannot be read`, cause);
  }
  throw invalid('BETTER_COMPUTE_VAULT_TOKEN_FILE', `${path} holds no token`);
}

const invalid = (name: string, message: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_CONFIG', `${name}: ${message}`, {
    details: { reason: 'environment', name },
    ...(cause === undefined ? {} : { cause }),
  });
