/**
 * The api process: the operator's API, the listener that gateways relay to, the codec endpoint, and the publication of the trust
 * bundle. It holds the join, node CA and join encryption keys; it signs no command.
 */
import { createServer, type Server } from 'node:http';
import { hostname } from 'node:os';
import { Client, Connection, type ConnectionOptions } from '@temporalio/client';
import { createDatabase, type Database } from '../drizzle/client.ts';
import { migrate } from '../drizzle/migrate.ts';
import { createBundleFileStore } from '../runtime/bundle-file-store.ts';
import { createCodecHandlers } from '../runtime/codec-http.ts';
import { rotationTimes } from '../runtime/config.ts';
import { createHealth } from '../runtime/health.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../runtime/lifecycle.ts';
import { createDataConverter, createPayloadCodec, parseCodecKey } from '../runtime/payload-codec.ts';
import { listenOn, showAddress } from '../runtime/ports.ts';
import { temporalConnectionOptions } from '../runtime/temporal.ts';
import { watchTlsFiles } from '../runtime/tls-files.ts';
import { createDatabaseBundleStore } from '../services/bundle-store.ts';
import { pkiAllocationBindingCheck } from '../services/capacity/binding-check.ts';
import { createGatewayServices } from '../services/gateway-services.ts';
import { askOperators } from '../services/join/approvals.ts';
import { createSecretResolver } from '../services/secrets/providers.ts';
import type { WorkloadIssuerSource } from '../services/workload-broker.ts';
import { ensureWorkloadKeys, readWorkloadIssuer } from '../services/workload-keys.ts';
import { createBatchWorkflows } from './batch-workflows.ts';
import type { CodecEndpoint } from './codec.ts';
import { type ApiConfig, readApiConfig } from './config.ts';
import { createConsolePorts } from './console-ports.ts';
import { createIdentity } from './identity.ts';
import { createInternalListener, setListenerTls } from './internal.ts';
import { type KeyKeeper, startKeyKeeper } from './key-keeper.ts';
import { createMetalWorkflows } from './metal-workflows.ts';
import { createApiMetrics } from './metrics.ts';
import { createOperatorApp } from './operator.ts';
import { createOperatorPorts } from './operator-ports.ts';
import { createOperatorWorkflows } from './temporal-workflows.ts';
import { readTlsPair } from './tls-pair.ts';
import { openTpmTrust } from './tpm-trust.ts';
import { whileUsable } from './while-usable.ts';

const version = '0.1.0';
const now = Date.now;

async function start(context: ProcessContext): Promise<RunningProcess> {
  const config = readApiConfig(context.env);
  const closing: (() => Promise<void> | void)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of closing.splice(0).toReversed()) await close();
  };
  try {
    return { addresses: await startAll(config, context, closing), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Closing = (() => Promise<void> | void)[];

async function startAll(config: ApiConfig, context: ProcessContext, closing: Closing): Promise<Record<string, string>> {
  const { log } = context;
  const db = createDatabase(config.databaseUrl, { applicationName: 'better-compute api' });
  closing.push(() => db.close());
  const migrated = await migrate(db.pool);
  if (migrated.length > 0) log.info({ migrated }, 'database migrated');
  const keys = await keepKeys(config, context, db);
  closing.push(() => keys.close());
  const temporal = connectTemporal(config, context.env);
  closing.push(() => temporal.close());

  const gateway = { url: config.gatewayUrl, name: config.gatewayName };
  const workflows = createOperatorWorkflows(async () => temporal.client, now);
  const { workload } = config;
  if (workload !== null && (await ensureWorkloadKeys(db, workload)))
    log.info({ issuer: workload.issuer }, 'workload issuer got its first key');
  const batchWorkflows = createBatchWorkflows(async () => temporal.client);
  const metalWorkflows = createMetalWorkflows(async () => temporal.client);
  const kept = { workload, ticketIssuer: config.ticketIssuer, secret: config.secrets.secret };
  const ports = createOperatorPorts({ db, bundle: keys.current, workflows, batchWorkflows, metalWorkflows, gateway, ...kept, log, now });
  const identity = createIdentity({ bearer: config.operator.bearer, oidc: config.oidc });
  const health = createHealth({ process: 'api' });
  const metrics = createApiMetrics(health.registry, ports.reads.getTrust);
  health.check('database', async () => void (await db.query({ text: 'select 1' })));
  health.check('keys', () => {
    const problem = keys.problem();
    if (problem !== null) throw problem;
  });

  const app = createOperatorApp({
    ports,
    bearer: config.operator.bearer,
    identity,
    console: createConsolePorts(identity, ports),
    version,
    log,
    observe: metrics.request,
    ...codecOf(config),
    ...(workload === null ? {} : { workload: { issuer: workload.issuer, read: () => readWorkloadIssuer(db, workload) } }),
  });
  const operator = await listen(
    createServer(app),
    { ...config.operator, who: 'the operator API', setBy: 'BETTER_COMPUTE_API_PORT' },
    closing,
  );
  const internal = await startInternal({ config, keys, db, context, observe: metrics.relay }, closing);
  const metricsServer = await health.listen(config.metrics);
  closing.push(() => metricsServer.close());
  return { api: `http://${operator}`, internal: `https://${internal}`, metrics: metricsServer.address };
}

function keepKeys(config: ApiConfig, { log, env }: ProcessContext, db: Database): Promise<KeyKeeper> {
  return startKeyKeeper({
    db,
    store: config.bundlePath === null ? createDatabaseBundleStore({ db, now, log }) : createBundleFileStore(config.bundlePath),
    secret: config.secret,
    allowUnauthenticated: config.allowUnauthenticated,
    trustDomain: config.trustDomain,
    floorOption: config.trustVersionFloor,
    approvers: config.approvers,
    times: rotationTimes(env),
    process: { id: `api@${hostname()}:${process.pid}`, host: hostname(), pid: process.pid, version },
    log,
    now,
  });
}

/** Connects when it is first used: the api serves joins and renewals while Temporal is away. */
function connectTemporal({ codecKey }: ApiConfig, env: NodeJS.ProcessEnv): { client: Client; close(): Promise<void> } {
  const { connectionOptions, namespace } = temporalConnectionOptions(env);
  const connection = Connection.lazy({ ...(connectionOptions as ConnectionOptions), connectTimeout: 5_000 });
  return { client: new Client({ connection, namespace, dataConverter: createDataConverter(codecKey) }), close: () => connection.close() };
}

function codecOf({ codecEndpoint, codecKey, operator }: ApiConfig): { codec?: CodecEndpoint } {
  if (codecEndpoint === null || codecKey === undefined) return {};
  return {
    codec: { ...codecEndpoint, bearer: operator.bearer, handlers: createCodecHandlers(createPayloadCodec(parseCodecKey(codecKey))) },
  };
}

const issuerOf = ({ workload }: ApiConfig, db: Database): WorkloadIssuerSource | null =>
  workload === null ? null : () => readWorkloadIssuer(db, workload);

interface InternalParts {
  readonly config: ApiConfig;
  readonly keys: KeyKeeper;
  readonly db: Database;
  readonly context: ProcessContext;
  readonly observe: (kind: string, code: string) => void;
}

async function startInternal({ config, keys, db, context: { log }, observe }: InternalParts, closing: Closing): Promise<string> {
  const tls = await readTlsPair(config.tls);
  const services = whileUsable(
    keys,
    createGatewayServices({
      db,
      bundle: keys.current,
      workload: issuerOf(config, db),
      secrets: createSecretResolver(db, config.secrets),
      tpm: config.tpm === null ? null : await openTpmTrust(config.tpm, log),
      ...(config.joinApproval.length === 0 ? {} : { joinPolicy: askOperators(db, config.joinApproval) }),
      attestedBindings: keys.current().commandSigning === undefined ? null : pkiAllocationBindingCheck(),
      log,
      now,
    }),
  );
  const anchors = (): Uint8Array[] => keys.current().internalCa.certificates.map((certificate) => certificate.der);
  const server = createInternalListener({ tls, anchors, services, log, now, observe });
  const watch = watchTlsFiles(config.tls, (next) => setListenerTls(server, next), {
    what: 'internal certificate',
    intervalMs: config.tlsIntervalMs,
    served: tls,
    onReload: () => log.info({}, 'internal certificate reloaded'),
    onError: (error) => log.error({ err: error }, error.message),
  });
  closing.push(() => watch.close());
  return listen(server, { ...config.internal, who: "the api's internal listener", setBy: 'BETTER_COMPUTE_INTERNAL_PORT' }, closing);
}

async function listen(server: Server, request: Parameters<typeof listenOn>[1], closing: Closing): Promise<string> {
  const at = await listenOn(server, request);
  closing.push(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
        // What is under way may end; a connection kept open for nothing may not hold the process.
        setTimeout(() => server.closeAllConnections(), 5_000).unref();
      }),
  );
  return showAddress(at);
}

await runProcess({ name: 'api', start });
