/** What the workers are told, parsed once from the environment. The control worker has no field for a secret or a bundle. */
import { join, resolve } from 'node:path';
import { z } from 'zod';
import type { RotationTimes } from '../domain/rotation/gates.ts';
import { hostField, parseEnv, portField, rotationTimes, switchField } from '../runtime/config.ts';
import { type SignerEnvironment, signerFields } from '../runtime/signers/external-signers.ts';
import { ticketIssuerField } from '../services/ticket-issuer.ts';
import type { WorkloadSettings } from '../services/workload-keys.ts';
import { workloadSettingsOf } from '../services/workload-settings.ts';
import { type HostLayout, usualLayout } from './hosts/layout.ts';

const optional = z.string().min(1).optional();

const shared = {
  BETTER_COMPUTE_DATABASE_URL: z.string(),
  BETTER_COMPUTE_METRICS_HOST: hostField(),
  BETTER_COMPUTE_METRICS_PORT: portField(0),
  BETTER_COMPUTE_CODEC: switchField(true),
  BETTER_COMPUTE_CODEC_KEY: optional,
};

const controlSchema = z.object({ ...shared, BETTER_COMPUTE_TRUST_DOMAIN: optional });
const signingSchema = z.object({
  ...shared,
  BETTER_COMPUTE_HOME: z.string().default('.better-compute'),
  BETTER_COMPUTE_SECRET: optional,
  BETTER_COMPUTE_PKI: optional,
  BETTER_COMPUTE_TRUST_DOMAIN: optional,
  BETTER_COMPUTE_TLS: optional,
  BETTER_COMPUTE_GATEWAY_URL: optional,
  BETTER_COMPUTE_GATEWAY_NAME: optional,
  BETTER_COMPUTE_TICKET_ISSUER: ticketIssuerField,
  BETTER_COMPUTE_WORKLOAD_ISSUER: optional,
  BETTER_COMPUTE_WORKLOAD_AUDIENCE: optional,
  BETTER_COMPUTE_WORKLOAD_AUDIENCES: optional,
  ...signerFields,
});

const machinePath = (usual: string) =>
  z
    .string()
    .regex(/^\/[\x21-\x7e]{1,254}$/, 'must be an absolute path without blanks')
    .refine((path) => !path.includes('..'), 'must not contain ..')
    .default(usual);

const hostsSchema = z.object({
  ...shared,
  BETTER_COMPUTE_HOME: z.string().default('.better-compute'),
  BETTER_COMPUTE_PKI: optional,
  BETTER_COMPUTE_GATEWAY_URL: z.url({ protocol: /^https$/ }),
  BETTER_COMPUTE_GATEWAY_NAME: optional,
  BETTER_COMPUTE_HOST_CREDENTIALS: optional,
  BETTER_COMPUTE_HOST_BCD: optional,
  BETTER_COMPUTE_HOST_PROGRAM: machinePath(usualLayout.program),
  BETTER_COMPUTE_HOST_DATA: machinePath(usualLayout.dataDir),
  BETTER_COMPUTE_HOST_CONFIG: machinePath(usualLayout.configDir),
  BETTER_COMPUTE_HOST_UNITS: machinePath(usualLayout.unitDir),
  BETTER_COMPUTE_HOST_WEBSOCKET_URL: optional,
  BETTER_COMPUTE_HOST_APPROVER_SET_SHA256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits')
    .exactOptional(),
});

export interface WorkerConfig {
  readonly databaseUrl: string;
  readonly metrics: { readonly host: string; readonly port: number };
  /** undefined: payloads stay plain. */
  readonly codecKey: string | undefined;
}

export interface ControlConfig extends WorkerConfig {
  /** What approvals are made for; undefined: none can be judged here. */
  readonly trustDomain: string | undefined;
}

export interface SigningConfig extends WorkerConfig {
  readonly secret: string | undefined;
  /** null: the bundle is a row of the database. */
  readonly bundlePath: string | null;
  readonly trustDomain: string | undefined;
  /** Where the gateways read their certificate. */
  readonly tlsFolder: string;
  /** Where a deployed system is told to join. */
  readonly gateway: { readonly url: string | undefined; readonly name: string | undefined };
  /** Whose exec tickets nodes take; null: there are no tunnels. */
  readonly ticketIssuer: string | null;
  /** null: no workload tokens (WID-004). */
  readonly workload: WorkloadSettings | null;
  readonly times: RotationTimes;
  /** How keys are reached that the bundle only refers to. */
  readonly signers: SignerEnvironment;
}

export interface HostsConfig extends WorkerConfig {
  /** null: the bundle is a row of the database. Only its public half is read. */
  readonly bundlePath: string | null;
  /** Where machines are told to dial. */
  readonly gateway: { readonly url: string; readonly name: string | undefined };
  /** Folder of the credentials of hosts; null: none can be used. */
  readonly credentials: string | null;
  /** What new machines get; null: they must have it. */
  readonly program: string | null;
  readonly layout: HostLayout;
  readonly unit: { readonly releaseKeys: null; readonly websocketUrl: string | null };
  /** The only first approver set that new machines take. */
  readonly approverSetSha256: string | undefined;
}

/** @throws MISSING_ENV or INVALID_CONFIG naming every problem */
export function readHostsConfig(env: NodeJS.ProcessEnv): HostsConfig {
  const parsed = parseEnv(hostsSchema, env);
  const bundle = parsed.BETTER_COMPUTE_PKI ?? join(resolve(parsed.BETTER_COMPUTE_HOME), 'pki.json');
  const resolved = (path: string | undefined): string | null => (path === undefined ? null : resolve(path));
  return {
    ...sharedOf(parsed),
    bundlePath: bundle === 'database' ? null : resolve(bundle),
    gateway: { url: parsed.BETTER_COMPUTE_GATEWAY_URL, name: parsed.BETTER_COMPUTE_GATEWAY_NAME },
    credentials: resolved(parsed.BETTER_COMPUTE_HOST_CREDENTIALS),
    program: resolved(parsed.BETTER_COMPUTE_HOST_BCD),
    layout: {
      program: parsed.BETTER_COMPUTE_HOST_PROGRAM,
      dataDir: parsed.BETTER_COMPUTE_HOST_DATA,
      configDir: parsed.BETTER_COMPUTE_HOST_CONFIG,
      unitDir: parsed.BETTER_COMPUTE_HOST_UNITS,
    },
    unit: { releaseKeys: null, websocketUrl: parsed.BETTER_COMPUTE_HOST_WEBSOCKET_URL ?? null },
    approverSetSha256: parsed.BETTER_COMPUTE_HOST_APPROVER_SET_SHA256,
  };
}

/** @throws MISSING_ENV or INVALID_CONFIG naming every problem */
export function readControlConfig(env: NodeJS.ProcessEnv): ControlConfig {
  const parsed = parseEnv(controlSchema, env);
  return { ...sharedOf(parsed), trustDomain: parsed.BETTER_COMPUTE_TRUST_DOMAIN };
}

/** @throws MISSING_ENV or INVALID_CONFIG naming every problem */
export function readSigningConfig(env: NodeJS.ProcessEnv): SigningConfig {
  const parsed = parseEnv(signingSchema, env);
  const home = resolve(parsed.BETTER_COMPUTE_HOME);
  const bundle = parsed.BETTER_COMPUTE_PKI ?? join(home, 'pki.json');
  return {
    ...sharedOf(parsed),
    secret: parsed.BETTER_COMPUTE_SECRET,
    bundlePath: bundle === 'database' ? null : resolve(bundle),
    trustDomain: parsed.BETTER_COMPUTE_TRUST_DOMAIN,
    tlsFolder: resolve(parsed.BETTER_COMPUTE_TLS ?? join(home, 'tls')),
    gateway: { url: parsed.BETTER_COMPUTE_GATEWAY_URL, name: parsed.BETTER_COMPUTE_GATEWAY_NAME },
    ticketIssuer: parsed.BETTER_COMPUTE_TICKET_ISSUER ?? null,
    workload: workloadSettingsOf(parsed),
    times: rotationTimes(env),
    signers: parsed,
  };
}

const sharedOf = (parsed: Omit<z.infer<typeof controlSchema>, 'BETTER_COMPUTE_TRUST_DOMAIN'>): WorkerConfig => ({
  databaseUrl: parsed.BETTER_COMPUTE_DATABASE_URL,
  metrics: { host: parsed.BETTER_COMPUTE_METRICS_HOST, port: parsed.BETTER_COMPUTE_METRICS_PORT },
  codecKey: parsed.BETTER_COMPUTE_CODEC ? parsed.BETTER_COMPUTE_CODEC_KEY : undefined,
});
