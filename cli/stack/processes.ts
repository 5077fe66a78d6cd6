/**
 * The processes of the control plane and what each is told: one table, because what a process does not get it cannot leak. The
 * gateway and the control worker never see the secret; only the api and the signing worker open the key bundle.
 */

import { deriveCodecKey } from '../../runtime/codec-key.ts';
import { demonstrationTimesName } from '../../runtime/config.ts';
import { gatewayNodeFlags } from '../../runtime/node-flags.ts';
import type { StackHome } from './home.ts';
import type { Ports } from './ports.ts';

/** What the supervisor knows when it starts a process. */
export interface StackFacts {
  readonly home: StackHome;
  readonly env: NodeJS.ProcessEnv;
  readonly ports: Ports;
  readonly databaseUrl: string;
  readonly temporalAddress: string;
  /** null when the UI is not ours. */
  readonly temporalUiUrl: string | null;
  readonly secret: string;
  readonly trustDomain: string;
}

type Told = Readonly<Record<string, string>>;

export interface ProcessRow {
  /** Path of the program from the root, without its ending. */
  readonly entry: string;
  /** What node itself is told; default: nothing. */
  readonly nodeFlags?: readonly string[];
  readonly told: (facts: StackFacts) => Told;
}

const host = '127.0.0.1';
const databaseOf = (facts: StackFacts): Told => ({ BETTER_COMPUTE_DATABASE_URL: facts.databaseUrl });
const keysOf = (facts: StackFacts): Told => ({ BETTER_COMPUTE_SECRET: facts.secret, BETTER_COMPUTE_PKI: facts.home.bundle });
const tlsOf = (facts: StackFacts): Told => ({ BETTER_COMPUTE_TLS: facts.home.tls });
const metricsOn = (port: number): Told => ({ BETTER_COMPUTE_METRICS_HOST: host, BETTER_COMPUTE_METRICS_PORT: String(port) });

/** How keys are reached that lie in a token or with a signer program: the signing worker's business only. */
const signerNames = [
  'BETTER_COMPUTE_PKCS11_MODULE',
  'BETTER_COMPUTE_PKCS11_PIN_FILE',
  'BETTER_COMPUTE_SIGNER_COMMAND',
  'BETTER_COMPUTE_SIGNER_TIMEOUT_MS',
  'SOFTHSM2_CONF',
] as const;

/** How machines are reached over SSH: the hosts worker's business only. */
const hostNames = [
  'BETTER_COMPUTE_HOST_CREDENTIALS',
  'BETTER_COMPUTE_HOST_BCD',
  'BETTER_COMPUTE_HOST_PROGRAM',
  'BETTER_COMPUTE_HOST_DATA',
  'BETTER_COMPUTE_HOST_CONFIG',
  'BETTER_COMPUTE_HOST_UNITS',
  'BETTER_COMPUTE_HOST_WEBSOCKET_URL',
  'BETTER_COMPUTE_HOST_APPROVER_SET_SHA256',
] as const;

/** Temporal and the key of its payloads. With the codec off, payloads are plain. */
function temporalOf({ temporalAddress, env, secret }: StackFacts): Told {
  const codec: Told =
    env['BETTER_COMPUTE_CODEC'] === 'off' ? { BETTER_COMPUTE_CODEC: 'off' } : { BETTER_COMPUTE_CODEC_KEY: deriveCodecKey(secret) };
  const profile = Object.fromEntries(
    Object.entries(env).filter((entry): entry is [string, string] => entry[0].startsWith('TEMPORAL_') && entry[1] !== undefined),
  );
  return { ...profile, TEMPORAL_ADDRESS: temporalAddress, ...codec };
}

/** On this machine the Temporal UI and CLI may read payloads: whoever reaches the loopback may see what workflows say. */
const codecEndpointOf = ({ env, ports, temporalUiUrl }: StackFacts): Told =>
  codecUrl(env, ports) === undefined
    ? {}
    : {
        BETTER_COMPUTE_CODEC_ENDPOINT: 'on',
        BETTER_COMPUTE_CODEC_ACCESS: env['BETTER_COMPUTE_CODEC_ACCESS'] || 'loopback',
        BETTER_COMPUTE_CODEC_ORIGINS: env['BETTER_COMPUTE_CODEC_ORIGINS'] || (temporalUiUrl ?? ''),
      };

/** What the operator set for the workload issuer: the api signs with its keys, the signing worker exchanges them. */
const workloadOf = ({ env }: StackFacts): Told =>
  Object.fromEntries(
    Object.entries(env).filter(
      (entry): entry is [string, string] => entry[0].startsWith('BETTER_COMPUTE_WORKLOAD_') && entry[1] !== undefined,
    ),
  );

/** Who approves, as the operator set it: the api publishes it. */
const approversOf = ({ env }: StackFacts): Told =>
  Object.fromEntries(
    Object.entries(env).filter(
      (entry): entry is [string, string] => /^BETTER_COMPUTE_(APPROVER_|UNBATCHED_PER_HOUR$)/.test(entry[0]) && Boolean(entry[1]),
    ),
  );

/** Tunnels are opened by tickets of this api, unless the operator names the address it is reached by. */
const ticketsOf = ({ env, ports }: StackFacts): Told => ({
  BETTER_COMPUTE_TICKET_ISSUER: env['BETTER_COMPUTE_TICKET_ISSUER'] || `http://${host}:${ports.api}`,
});

export const processTable = Object.freeze({
  api: {
    entry: 'api/main',
    told: (facts) => ({
      ...databaseOf(facts),
      ...temporalOf(facts),
      ...keysOf(facts),
      ...tlsOf(facts),
      ...metricsOn(facts.ports.apiMetrics),
      ...codecEndpointOf(facts),
      ...workloadOf(facts),
      ...ticketsOf(facts),
      ...approversOf(facts),
      BETTER_COMPUTE_API_HOST: host,
      BETTER_COMPUTE_API_PORT: String(facts.ports.api),
      BETTER_COMPUTE_INTERNAL_HOST: host,
      BETTER_COMPUTE_INTERNAL_PORT: String(facts.ports.internal),
      BETTER_COMPUTE_OPERATOR_TOKEN_FILE: facts.home.operatorToken,
      BETTER_COMPUTE_GATEWAY_URL: gatewayUrl(facts.ports),
    }),
  },
  gateway: {
    entry: 'gateway/main',
    nodeFlags: gatewayNodeFlags,
    told: (facts) => ({
      ...databaseOf(facts),
      ...tlsOf(facts),
      ...metricsOn(facts.ports.gatewayMetrics),
      BETTER_COMPUTE_GATEWAY_HOST: host,
      BETTER_COMPUTE_GATEWAY_PORT: String(facts.ports.gateway),
      BETTER_COMPUTE_GATEWAY_ID: facts.env['BETTER_COMPUTE_GATEWAY_ID'] || 'gateway-1',
      BETTER_COMPUTE_INTERNAL_URL: `https://${host}:${facts.ports.internal}`,
      ...pick(facts.env, ['BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT']),
    }),
  },
  'worker-control': {
    entry: 'workers/control',
    told: (facts) => ({ ...databaseOf(facts), ...temporalOf(facts), ...metricsOn(facts.ports.controlMetrics) }),
  },
  'worker-signing': {
    entry: 'workers/signing',
    told: (facts) => ({
      ...databaseOf(facts),
      ...temporalOf(facts),
      ...keysOf(facts),
      ...metricsOn(facts.ports.signingMetrics),
      ...tlsOf(facts),
      ...workloadOf(facts),
      ...ticketsOf(facts),
      BETTER_COMPUTE_GATEWAY_URL: gatewayUrl(facts.ports),
      ...pick(facts.env, signerNames),
    }),
  },
  'worker-hosts': {
    entry: 'workers/hosts',
    told: (facts) => ({
      ...databaseOf(facts),
      ...temporalOf(facts),
      // Its public half alone: without the secret nothing of the bundle opens.
      BETTER_COMPUTE_PKI: facts.home.bundle,
      ...metricsOn(0),
      BETTER_COMPUTE_GATEWAY_URL: gatewayUrl(facts.ports),
      ...pick(facts.env, hostNames),
    }),
  },
} as const satisfies Record<string, ProcessRow>);

export type ProcessName = keyof typeof processTable;

/** Machines are enrolled over SSH where the operator has a folder of their credentials. */
export const speaksSsh = (env: NodeJS.ProcessEnv): boolean => (env['BETTER_COMPUTE_HOST_CREDENTIALS'] ?? '') !== '';

/** undefined when payloads are plain, or nobody shall read them. */
export const codecUrl = (env: NodeJS.ProcessEnv, ports: Ports): string | undefined =>
  env['BETTER_COMPUTE_CODEC'] === 'off' || env['BETTER_COMPUTE_CODEC_ENDPOINT'] === 'off' ? undefined : `http://${host}:${ports.api}/codec`;

export const gatewayUrl = (ports: Ports): string => `https://localhost:${ports.gateway}`;

/** Of the caller's environment, what any program needs to run at all. */
const passedOn = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'XDG_CACHE_HOME', 'NODE_EXTRA_CA_CERTS'] as const;
/** And what is the same for every process of ours. */
const passedToOurs = ['BETTER_COMPUTE_LOG_LEVEL', demonstrationTimesName, 'BETTER_COMPUTE_TRUST_VERSION'] as const;

/** The whole environment of a process. */
export function processEnv(name: ProcessName, facts: StackFacts): Record<string, string> {
  const row: ProcessRow = processTable[name];
  return {
    ...pick(facts.env, [...passedOn, ...passedToOurs]),
    BETTER_COMPUTE_HOME: facts.home.root,
    BETTER_COMPUTE_TRUST_DOMAIN: facts.trustDomain,
    ...row.told(facts),
  };
}

/** The environment of a daemon on this machine: nothing of the control plane. */
export const daemonEnv = (env: NodeJS.ProcessEnv): Record<string, string> => pick(env, [...passedOn, 'BETTER_COMPUTE_LOG_LEVEL']);

function pick(env: NodeJS.ProcessEnv, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((name) => (env[name] === undefined || env[name] === '' ? [] : [[name, env[name]]])));
}
