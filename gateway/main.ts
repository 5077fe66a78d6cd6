/**
 * Composition root of the gateway process: its TLS files, the database, the internal client. It is given no secret of the
 * control plane and reads none.
 */
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { createDatabase, type Database } from '../drizzle/client.ts';
import { parseCertificate, parsePemCertificates } from '../pki/x509/index.ts';
import { hostField, intervalField, logLevelField, optionalPortField, parseEnv, portField } from '../runtime/config.ts';
import { createHealth } from '../runtime/health.ts';
import { type GatewayHost, loadHost } from '../runtime/host.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../runtime/lifecycle.ts';
import { showAddress, toPortError } from '../runtime/ports.ts';
import { type FileWatch, readTlsFiles, type TlsFileContent, type TlsFiles, tlsIntervalMs, watchTlsFiles } from '../runtime/tls-files.ts';
import { recordHeartbeat, removeProcess } from '../services/processes.ts';
import { createControlPlaneClient } from './control-plane-client.ts';
import { createGateway, type Gateway } from './gateway.ts';
import { addGauges, createPrometheusMetrics } from './prometheus.ts';
import { createSystemScheduler, type Scheduler } from './scheduler.ts';
import { createPostgresStore } from './session/store-postgres.ts';

const environment = z.object({
  BETTER_COMPUTE_DATABASE_URL: z.string().min(1),
  BETTER_COMPUTE_HOME: z.string().min(1).default('.better-compute'),
  BETTER_COMPUTE_HOST_MODULE: z.string().min(1).optional(),
  BETTER_COMPUTE_TLS: z.string().min(1).optional(),
  BETTER_COMPUTE_TLS_INTERVAL_MS: intervalField(tlsIntervalMs),
  BETTER_COMPUTE_TRUST_DOMAIN: z.string().min(1),
  BETTER_COMPUTE_GATEWAY_ID: z
    .string()
    .regex(/^[a-z0-9][a-z0-9.-]{0,62}$/, 'must be lower-case letters, digits, dots and dashes')
    .default('gateway'),
  BETTER_COMPUTE_GATEWAY_REGION: z.string().default(''),
  BETTER_COMPUTE_GATEWAY_HOST: hostField('0.0.0.0'),
  BETTER_COMPUTE_GATEWAY_PORT: portField(443),
  BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT: optionalPortField,
  BETTER_COMPUTE_METRICS_HOST: hostField(),
  BETTER_COMPUTE_METRICS_PORT: portField(0),
  BETTER_COMPUTE_INTERNAL_URL: z.url({ protocol: /^https$/, error: 'must be an https:// address' }),
  BETTER_COMPUTE_LOG_LEVEL: logLevelField,
});

type Environment = z.infer<typeof environment>;

const heartbeatPause = Object.freeze({ minMs: 9_000, maxMs: 11_000 });

interface WatchedFiles extends TlsFiles {
  readonly intervalMs: number;
}

/** What the host module says, else the files that issue-gateway and the deployment write (TLS-021). */
function filesOf(env: Environment, host: GatewayHost): { readonly daemon: WatchedFiles; readonly internal: WatchedFiles } {
  const folder = resolve(env.BETTER_COMPUTE_TLS ?? join(env.BETTER_COMPUTE_HOME, 'tls'));
  const at = (name: string): string => join(folder, name);
  const watched = ({ intervalMs = env.BETTER_COMPUTE_TLS_INTERVAL_MS, ...files }: TlsFiles & { intervalMs?: number | undefined }) => ({
    ...files,
    intervalMs,
  });
  return {
    daemon: watched(host.tlsFiles ?? { key: at('gateway.key'), cert: at('gateway.crt'), ca: at('node-ca.pem') }),
    internal: watched(
      host.internal?.tlsFiles ?? { key: at('internal-gateway.key'), cert: at('internal-gateway.crt'), ca: at('internal-ca.pem') },
    ),
  };
}

/** What is presented has been read by the TLS library: it has a leaf. */
function servingSerialOf({ cert }: TlsFileContent): string {
  const [leaf] = parsePemCertificates(cert.toString('utf8'));
  return leaf === undefined ? '' : parseCertificate(leaf).serial;
}

/** Everything the process is made of, before it listens. */
async function assemble(env: Environment, log: ProcessContext['log']) {
  const scheduler = createSystemScheduler();
  const module = env.BETTER_COMPUTE_HOST_MODULE;
  const host: GatewayHost = module === undefined ? {} : await loadHost(resolve(module));
  const files = filesOf(env, host);
  const gatewayId = env.BETTER_COMPUTE_GATEWAY_ID;
  const [tls, internalTls] = await Promise.all([readTlsFiles(files.daemon), readTlsFiles(files.internal)]);
  const database = createDatabase(env.BETTER_COMPUTE_DATABASE_URL, { applicationName: `gateway ${gatewayId}`, max: 16 });
  const client = createControlPlaneClient({ url: env.BETTER_COMPUTE_INTERNAL_URL, tls: internalTls });
  const health = createHealth({ process: 'gateway' });
  const serving = { serial: servingSerialOf(tls) };
  const heartbeat = createHeartbeat(database, { id: `gateway/${gatewayId}`, log, scheduler, servingSerial: () => serving.serial });
  const gateway = createGateway({
    tls,
    ...(host.tls === undefined ? {} : { tlsOptions: host.tls }),
    trustDomain: env.BETTER_COMPUTE_TRUST_DOMAIN,
    gatewayId,
    store: createPostgresStore(database, scheduler.now),
    connectListener: () => database.connect(),
    services: client,
    log,
    metrics: createPrometheusMetrics(health.registry),
    scheduler,
    onTrust: ({ version }) => void heartbeat.beat(version),
  });
  addGauges(health.registry, { gateway, gatewayId, region: host.region ?? env.BETTER_COMPUTE_GATEWAY_REGION });
  health.check('gateway', () => {
    const wrong = gateway.notReady();
    if (wrong !== null) throw new Error(wrong);
  });
  const reported = { every: scheduler.every, onError: (error: Error) => log.error({ err: error }, error.message) };
  const present = (next: TlsFileContent): void => {
    gateway.setTls(next);
    serving.serial = servingSerialOf(next);
    void heartbeat.beat(gateway.sessions.publishedVersion);
  };
  const watch = (): FileWatch[] => [
    watchTlsFiles(files.daemon, present, {
      ...reported,
      intervalMs: files.daemon.intervalMs,
      what: 'Gateway serving certificate',
      served: tls,
      onReload: () => log.info({}, 'gateway serving certificate reloaded'),
    }),
    watchTlsFiles(files.internal, (next) => client.setTls(next), {
      ...reported,
      intervalMs: files.internal.intervalMs,
      what: 'Gateway internal certificate',
      served: internalTls,
      onReload: () => log.info({}, 'gateway internal certificate reloaded'),
    }),
  ];
  return { gateway, database, client, health, heartbeat, watch };
}

interface Heartbeat {
  beat(trustVersionSeen: number | null): Promise<void>;
  /** Again and again, with the version that is handed out then. */
  start(version: () => number | null): void;
  /** Takes the row away: no gate waits for a gateway that left in order. */
  stop(): Promise<void>;
}

interface HeartbeatOptions {
  readonly id: string;
  readonly log: ProcessContext['log'];
  readonly scheduler: Scheduler;
  readonly servingSerial: () => string;
}

/** Which trust version this gateway hands out, and which certificate it presents: the gates of a rotation wait for every live process (H-02). */
function createHeartbeat(database: Database, { id, log, scheduler, servingSerial }: HeartbeatOptions): Heartbeat {
  const fixed = {
    id,
    kind: 'gateway',
    host: hostname(),
    pid: process.pid,
    version: '',
    bundleDigest: null,
    bundleGeneration: null,
  } as const;
  let cancel: () => void = () => undefined;
  const beat = async (trustVersionSeen: number | null): Promise<void> => {
    try {
      await recordHeartbeat(database, { ...fixed, trustVersionSeen, servingSerial: servingSerial() });
    } catch (err) {
      log.warn({ err }, 'the heartbeat was not recorded');
    }
  };
  return {
    beat,
    start(version) {
      cancel = scheduler.every(heartbeatPause, () => void beat(version()));
    },
    async stop() {
      cancel();
      await removeProcess(database, id).catch(() => undefined);
    },
  };
}

async function start({ env: processEnv, log }: ProcessContext): Promise<RunningProcess> {
  const env = parseEnv(environment, processEnv);
  const { gateway, database, client, health, heartbeat, watch } = await assemble(env, log);
  const at = await listen(gateway, env);
  const webSocket = await listenWebSocket(gateway, env);
  const metrics = await health.listen({ host: env.BETTER_COMPUTE_METRICS_HOST, port: env.BETTER_COMPUTE_METRICS_PORT });
  const watches = watch();
  const version = (): number | null => gateway.sessions.publishedVersion;
  await heartbeat.beat(version());
  heartbeat.start(version);
  return {
    addresses: { gateway: at, ...(webSocket === null ? {} : { websocket: webSocket }), metrics: metrics.address },
    async stop() {
      for (const one of watches) one.close();
      await gateway.drain({ windowMs: 5_000, endAfterMs: 8_000 });
      await heartbeat.stop();
      client.close();
      await metrics.close();
      await database.close();
    },
  };
}

async function listen(gateway: Gateway, env: Environment): Promise<string> {
  const at = { host: env.BETTER_COMPUTE_GATEWAY_HOST, port: env.BETTER_COMPUTE_GATEWAY_PORT };
  try {
    const { address, port } = await gateway.listen(at);
    return showAddress({ host: address, port });
  } catch (error) {
    throw toPortError(error, { ...at, who: 'the gateway', setBy: 'BETTER_COMPUTE_GATEWAY_PORT' }) ?? error;
  }
}

/** null: it was not asked for. */
async function listenWebSocket(gateway: Gateway, env: Environment): Promise<string | null> {
  if (env.BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT === undefined) return null;
  const at = { host: env.BETTER_COMPUTE_GATEWAY_HOST, port: env.BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT };
  try {
    const { address, port } = await gateway.listenWebSocket(at);
    return showAddress({ host: address, port });
  } catch (error) {
    const what = { ...at, who: "the gateway's WebSocket listener", setBy: 'BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT' };
    throw toPortError(error, what) ?? error;
  }
}

await runProcess({ name: 'gateway', start });
