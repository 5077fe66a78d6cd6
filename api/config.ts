/** What the api is told, parsed once from the environment. */
import { readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import type { QuorumFields } from '../pki/trust/index.ts';
import { approverEnv, readApproverFiles } from '../runtime/approver-files.ts';
import { hostField, intervalField, parseEnv, portField, switchField } from '../runtime/config.ts';
import { tlsIntervalMs } from '../runtime/tls-files.ts';
import { quorumOfFiles } from '../services/approvers.ts';
import { offeredAttestors } from '../services/join/join.ts';
import type { AttestorName } from '../services/join/types.ts';
import type { SecretSettings } from '../services/secrets/providers.ts';
import { ticketIssuerField } from '../services/ticket-issuer.ts';
import type { WorkloadSettings } from '../services/workload-keys.ts';
import { workloadSettingsOf } from '../services/workload-settings.ts';
import type { OidcSettings } from './identity.ts';
import { secretEnv, secretSettingsOf } from './secret-settings.ts';
import { type TpmSettings, tpmEnv, tpmSettingsOf } from './tpm-trust.ts';

const optional = z.string().min(1).optional();

/** Which joins wait for an operator's word: names of attestors (JOIN-011), comma-separated. */
const joinApprovalField = z
  .string()
  .default('')
  .transform((text) =>
    text
      .split(',')
      .map((name) => name.trim())
      .filter((name) => name !== ''),
  )
  .pipe(z.array(z.enum(offeredAttestors, `must be names of attestors: ${offeredAttestors.join(', ')}`)));

const schema = z.object({
  BETTER_COMPUTE_HOME: z.string().default('.better-compute'),
  BETTER_COMPUTE_DATABASE_URL: z.string(),
  BETTER_COMPUTE_SECRET: optional,
  BETTER_COMPUTE_PKI: optional,
  BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED: z.enum(['0', '1'], 'must be 0 or 1').default('0'),
  BETTER_COMPUTE_TRUST_DOMAIN: optional,
  BETTER_COMPUTE_TRUST_VERSION: z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .default(0),
  BETTER_COMPUTE_API_HOST: hostField(),
  BETTER_COMPUTE_API_PORT: portField(8400),
  BETTER_COMPUTE_INTERNAL_HOST: hostField(),
  BETTER_COMPUTE_INTERNAL_PORT: portField(8401),
  BETTER_COMPUTE_METRICS_HOST: hostField(),
  BETTER_COMPUTE_METRICS_PORT: portField(0),
  BETTER_COMPUTE_TLS: optional,
  BETTER_COMPUTE_TLS_INTERVAL_MS: intervalField(tlsIntervalMs),
  BETTER_COMPUTE_OPERATOR_TOKEN: optional,
  BETTER_COMPUTE_OPERATOR_TOKEN_FILE: optional,
  BETTER_COMPUTE_GATEWAY_URL: optional,
  BETTER_COMPUTE_GATEWAY_NAME: optional,
  BETTER_COMPUTE_CODEC: switchField(true),
  BETTER_COMPUTE_CODEC_KEY: optional,
  BETTER_COMPUTE_CODEC_ENDPOINT: switchField(false),
  BETTER_COMPUTE_CODEC_ACCESS: z.enum(['bearer', 'loopback'], 'must be bearer or loopback').default('bearer'),
  BETTER_COMPUTE_CODEC_ORIGINS: z.string().default(''),
  BETTER_COMPUTE_JOIN_APPROVAL: joinApprovalField,
  BETTER_COMPUTE_TICKET_ISSUER: ticketIssuerField,
  BETTER_COMPUTE_WORKLOAD_ISSUER: optional,
  BETTER_COMPUTE_WORKLOAD_AUDIENCE: optional,
  BETTER_COMPUTE_WORKLOAD_AUDIENCES: z.string().default(''),
  ...secretEnv,
  ...tpmEnv,
  ...approverEnv,
  BETTER_COMPUTE_OIDC_ISSUER: optional,
  BETTER_COMPUTE_OIDC_AUDIENCE: optional,
  BETTER_COMPUTE_OIDC_JWKS: optional,
});

export interface ApiConfig {
  readonly databaseUrl: string;
  readonly secret: string | undefined;
  /** null: the bundle is a row of the database. */
  readonly bundlePath: string | null;
  readonly allowUnauthenticated: boolean;
  readonly trustDomain: string | undefined;
  readonly trustVersionFloor: number;
  readonly operator: { readonly host: string; readonly port: number; readonly bearer: string };
  readonly internal: { readonly host: string; readonly port: number };
  readonly metrics: { readonly host: string; readonly port: number };
  readonly tls: { readonly key: string; readonly cert: string };
  readonly tlsIntervalMs: number;
  readonly gatewayUrl: string | undefined;
  readonly gatewayName: string | undefined;
  readonly codecKey: string | undefined;
  /** null: off. */
  readonly codecEndpoint: { readonly access: 'bearer' | 'loopback'; readonly origins: readonly string[] } | null;
  /** The origin that exec tickets are issued by; null: there are no tunnels. */
  readonly ticketIssuer: string | null;
  /** null: no workload tokens (WID-004). */
  readonly workload: WorkloadSettings | null;
  /** Where secrets come from (SEC-028). */
  readonly secrets: SecretSettings;
  /** By which attestors a machine waits for an operator's word; none: everybody whose evidence holds is admitted. */
  readonly joinApproval: readonly AttestorName[];
  /** Whose TPMs are of this fleet; null: nobody joins by one. */
  readonly tpm: TpmSettings | null;
  /** Who approves, as this process is told; null: it says nothing, and what is recorded stays. */
  readonly approvers: QuorumFields | null;
  /** null: the operator token is the only credential. */
  readonly oidc: OidcSettings | null;
}

/** @throws MISSING_ENV or INVALID_CONFIG naming every problem of the environment; then those of the operator token's file */
export function readApiConfig(env: NodeJS.ProcessEnv): ApiConfig {
  const parsed = parseEnv(schema, env);
  const home = resolve(parsed.BETTER_COMPUTE_HOME);
  const tls = resolve(parsed.BETTER_COMPUTE_TLS ?? join(home, 'tls'));
  const codecKey = parsed.BETTER_COMPUTE_CODEC ? parsed.BETTER_COMPUTE_CODEC_KEY : undefined;
  const bundle = parsed.BETTER_COMPUTE_PKI ?? join(home, 'pki.json');
  return {
    databaseUrl: parsed.BETTER_COMPUTE_DATABASE_URL,
    secret: parsed.BETTER_COMPUTE_SECRET,
    bundlePath: bundle === 'database' ? null : resolve(bundle),
    allowUnauthenticated: parsed.BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED === '1',
    trustDomain: parsed.BETTER_COMPUTE_TRUST_DOMAIN,
    trustVersionFloor: parsed.BETTER_COMPUTE_TRUST_VERSION,
    operator: {
      host: parsed.BETTER_COMPUTE_API_HOST,
      port: parsed.BETTER_COMPUTE_API_PORT,
      bearer: parsed.BETTER_COMPUTE_OPERATOR_TOKEN ?? readToken(parsed.BETTER_COMPUTE_OPERATOR_TOKEN_FILE ?? join(home, 'operator.token')),
    },
    internal: { host: parsed.BETTER_COMPUTE_INTERNAL_HOST, port: parsed.BETTER_COMPUTE_INTERNAL_PORT },
    metrics: { host: parsed.BETTER_COMPUTE_METRICS_HOST, port: parsed.BETTER_COMPUTE_METRICS_PORT },
    tls: { key: join(tls, 'internal-api.key'), cert: join(tls, 'internal-api.crt') },
    tlsIntervalMs: parsed.BETTER_COMPUTE_TLS_INTERVAL_MS,
    gatewayUrl: parsed.BETTER_COMPUTE_GATEWAY_URL,
    gatewayName: parsed.BETTER_COMPUTE_GATEWAY_NAME,
    codecKey,
    codecEndpoint: parsed.BETTER_COMPUTE_CODEC_ENDPOINT
      ? { access: parsed.BETTER_COMPUTE_CODEC_ACCESS, origins: listOf(parsed.BETTER_COMPUTE_CODEC_ORIGINS) }
      : null,
    ticketIssuer: parsed.BETTER_COMPUTE_TICKET_ISSUER ?? null,
    workload: workloadSettingsOf(parsed),
    secrets: secretSettingsOf(parsed, env),
    joinApproval: parsed.BETTER_COMPUTE_JOIN_APPROVAL,
    tpm: tpmSettingsOf(parsed),
    approvers: approversOf(parsed),
    oidc: oidcOf(parsed),
  };
}

function approversOf(parsed: Parameters<typeof readApproverFiles>[0]): QuorumFields | null {
  const files = readApproverFiles(parsed);
  return files === null ? null : quorumOfFiles(files);
}

const oidcNames = ['BETTER_COMPUTE_OIDC_ISSUER', 'BETTER_COMPUTE_OIDC_AUDIENCE', 'BETTER_COMPUTE_OIDC_JWKS'] as const;

/** All three or none: a token of any audience, or of keys from anywhere, would be no proof. */
function oidcOf(parsed: { readonly [Name in (typeof oidcNames)[number]]?: string | undefined }): OidcSettings | null {
  const [issuer, audience, jwks] = oidcNames.map((name) => parsed[name]);
  if (issuer !== undefined && audience !== undefined && jwks !== undefined) return { issuer, audience, jwks };
  const missing = oidcNames.filter((name) => parsed[name] === undefined);
  if (missing.length === oidcNames.length) return null;
  throw new ControlError('MISSING_ENV', `${missing.join(' and ')} must be set beside the other BETTER_COMPUTE_OIDC_ names`, {
    details: { reason: 'environment' },
  });
}

const namesOf = (text: string): string[] =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');

const listOf = (text: string): string[] => namesOf(text).map((item) => item.replace(/\/$/, ''));

const shortestToken = 32;

function readToken(path: string): string {
  const invalid = (message: string, cause?: unknown): ControlError =>
    new ControlError('INVALID_CONFIG', message, { details: { reason: 'operator-token', path }, ...(cause === undefined ? {} : { cause }) });
  let text: string;
  let mode: number;
  try {
    text = readFileSync(path, 'utf8').trim();
    ({ mode } = statSync(path));
  } catch (cause) {
    throw invalid(`the operator token ${path} cannot be read`, cause);
  }
  if ((mode & 0o077) !== 0) throw invalid(`the operator token ${path} can be read by others: chmod 600 ${path}`);
  if (text.length < shortestToken) throw invalid(`the operator token ${path} is shorter than ${shortestToken} characters`);
  return text;
}
