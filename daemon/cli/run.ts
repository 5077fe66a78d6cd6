import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { parsePinsFile } from '../../pki/enroll/index.ts';
import { logLevelField, parseEnv } from '../../runtime/config.ts';
import { createHealth } from '../../runtime/health.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../../runtime/lifecycle.ts';
import type { AgentLog } from '../agent/log.ts';
import { type DaemonConfig, readDaemonConfig, underPins } from '../config.ts';
import { settleEnrolment } from '../enrol/settle.ts';
import { listenAddressForm, parseListenAddress } from '../imds/address.ts';
import { type MetadataService, type MetadataSettings, metadataSettings, openMetadataService } from '../imds/index.ts';
import type { UpgradePorts } from '../kinds/daemon-upgrade.ts';
import { type RunningDaemon, startDaemon } from '../run.ts';
import { openSiteAgent, type SiteAgentProcess } from '../site/index.ts';
import { crashAtName, crashHook, testOnlyName } from '../state/crash-points.ts';
import { findIdentity, getIdentity, type Identity } from '../state/identity.ts';
import { openRoute } from '../transport/route.ts';
import { isWebSocketUrl, webSocketUrlForm } from '../transport/websocket/url.ts';
import { productionOverlapMs } from '../trust/offered-trust.ts';
import { watchTrial } from '../upgrade/probation.ts';
import { readReleaseKeys } from '../upgrade/release-keys.ts';
import { daemonVersion } from '../version.ts';
import { type CommonFlags, dataDirOption, examples, readPins } from './common.ts';

interface RunFlags extends CommonFlags {
  readonly config?: string;
  readonly pins?: string;
  readonly releaseKeys?: string;
  readonly websocketUrl?: string;
  readonly simulateReboot: boolean;
  readonly demonstrationOnlyRootOverlapMs?: number;
  readonly metricsPort?: number;
  readonly metricsHost: string;
  readonly imdsListen?: string;
  readonly fakehwInstances?: string;
}

export function registerRun(program: Command): void {
  const command = withFlags(program.command('run'))
    .addOption(
      new Option(
        '--imds-listen <address:port>',
        'serve identity tokens to the instances of this machine here; goes before imds.listen of the configuration',
      ).argParser(listenAddress),
    )
    .option('--fakehw-instances <file>', 'for tests and development, not real hardware: the instances that this machine pretends to run')
    .description('Stay connected, judge commands by their signatures and run what may run')
    .action((flags: RunFlags) => runProcess({ name: 'bcd', start: (context) => start(context, flags, async () => undefined) }));
  examples(command, [
    'bcd run',
    'bcd run --data-dir /var/lib/better-compute/bcd --config /etc/better-compute/bcd.json',
    'bcd run --data-dir ./node-1 --simulate-reboot --metrics-port 0',
    'bcd run --imds-listen 127.0.0.1:8089 --fakehw-instances ./instances.json',
  ]);
}

/** The same daemon; it says so when the machine is no site agent, in place of running as something else. */
export function registerSite(program: Command): void {
  const command = withFlags(program.command('site'))
    .description('Run as a site agent: controllers, boot server and relayed requests for the machines of a site')
    .action((flags: RunFlags) =>
      runProcess({
        name: 'bcd',
        start: (context) => start(context, flags, async () => assertSite((await getIdentity(flags.dataDir)).identity, flags.dataDir)),
      }),
    );
  examples(command, [
    'bcd join --role site "$(better-compute tokens create --role site)"',
    'bcd site --config /etc/better-compute/bcd.json',
  ]);
}

function assertSite({ role, nodeId }: Identity, dataDir: string): void {
  if (role === 'site') return;
  throw new ControlError(
    'INVALID_STATE',
    `${nodeId} in ${dataDir} is a ${role}, not a site agent: bcd run runs it; join with --role site to make a site agent`,
    { details: { reason: 'not-a-site-agent' } },
  );
}

const withFlags = (command: Command): Command =>
  command
    .addOption(dataDirOption())
    .option('--config <file>', 'what this machine allows (default: config.json in the data folder, if it is there)')
    .option(
      '--pins <file>',
      'whom this machine believes, as daemon install-script wrote it: the approver set that it names is the only first one',
    )
    .addOption(
      new Option(
        '--websocket-url <url>',
        'reach the gateway over a WebSocket, through a proxy that takes TLS apart; goes before the configuration',
      ).argParser(webSocketUrl),
    )
    .option('--release-keys <file>', 'public keys (PEM) of who may publish the program of this machine; without one it is replaced by hand')
    .option('--simulate-reboot', 'for development hosts: node.reboot restarts this program with a new boot id', false)
    .addOption(
      new Option(
        '--demonstration-only-root-overlap-ms <ms>',
        'for demonstrations: let a command root leave this soon after its last use, in place of 24 h',
      ).argParser(whole),
    )
    .addOption(new Option('--metrics-port <port>', 'serve /healthz, /readyz and /metrics here; 0 for any; off without').argParser(port))
    .option('--metrics-host <address>', 'address of the metrics', '127.0.0.1');

async function start(
  { env, log, fail, end }: ProcessContext,
  flags: RunFlags,
  assertIdentity: () => Promise<void>,
): Promise<RunningProcess> {
  parseEnv(
    z.object({ BETTER_COMPUTE_LOG_LEVEL: logLevelField, [testOnlyName]: z.string().optional(), [crashAtName]: z.string().optional() }),
    env,
  );
  // Before anything that a new program could stumble over, its own configuration included.
  const watchEnds = await watchTrial({ dataDir: flags.dataDir, version: daemonVersion, log, leave: end });
  const config = await configOf(flags);
  const upgrade = await upgradeOf(flags, { config, end });
  const minOverlapMs = flags.demonstrationOnlyRootOverlapMs ?? productionOverlapMs;
  if (minOverlapMs < productionOverlapMs)
    log.warn({ minOverlapMs }, 'for demonstrations only: command roots may leave sooner than 24 h after their last use');
  const crash = crashHook(env);
  // Told to stop meanwhile, the process leaves: whatever moment that is, one identity is whole.
  await settleEnrolment({ dataDir: flags.dataDir, log, crash, stopped: new AbortController().signal, lastResort: false });
  await assertIdentity();
  const role = (await findIdentity(flags.dataDir).catch(() => undefined))?.identity.role;
  const metadata = metadataSettings({ listen: flags.imdsListen ?? config.imds?.listen, fakehwInstances: flags.fakehwInstances, role });
  const site = await siteOf(role, { dataDir: flags.dataDir, config, log });
  const daemon = await startDaemon({
    dataDir: flags.dataDir,
    config,
    simulateReboot: flags.simulateReboot,
    minOverlapMs,
    log,
    crash,
    onFailed: fail,
    upgrade,
    route: await openRoute(flags.websocketUrl ?? config.websocket?.url, { proxyCaFile: config.websocket?.proxyCaFile, env }),
    ...(site === null ? {} : { roleHandlers: (around) => site.roleHandlers(around) }),
  }).catch(async (error: unknown) => {
    await site?.close();
    throw error;
  });
  const servers = await serversOf(daemon, { flags, metadata, log }).catch(async (error: unknown) => {
    await daemon.stop();
    await site?.close();
    throw error;
  });
  return {
    addresses: { ...site?.addresses, ...servers.addresses },
    async stop() {
      watchEnds();
      await daemon.stop();
      await site?.close();
      await servers.close();
    },
  };
}

/** What the owner's file says, under the pins of the flags. */
async function configOf({ config, dataDir, pins }: RunFlags): Promise<DaemonConfig> {
  const owner = await readDaemonConfig(config ?? join(dataDir, 'config.json'), { mustExist: config !== undefined });
  return pins === undefined ? owner : underPins(owner, parsePinsFile(await readPins(pins)), pins);
}

/** What listens beside a daemon that runs. */
async function serversOf(
  daemon: RunningDaemon,
  { flags, metadata, log }: { readonly flags: RunFlags; readonly metadata: MetadataSettings | null; readonly log: AgentLog },
): Promise<MetadataService> {
  const imds =
    metadata === null ? null : await openMetadataService(metadata, { ask: daemon.askWorkloadToken, report: daemon.reportBinding, log });
  const metrics = flags.metricsPort === undefined ? null : await serveMetrics(daemon, { host: flags.metricsHost, port: flags.metricsPort });
  return {
    addresses: { ...imds?.addresses, ...(metrics === null ? {} : { metrics: metrics.address }) },
    async close() {
      await imds?.close();
      await metrics?.close();
    },
  };
}

/** How this program is replaced. */
async function upgradeOf(
  { dataDir, releaseKeys: path }: RunFlags,
  { config, end }: { config: DaemonConfig; end: (why: string) => void },
): Promise<UpgradePorts> {
  const ofConfig = (config.update?.releaseKeys ?? []).map((key) => new Uint8Array(Buffer.from(key, 'base64')));
  const releaseKeys = [...ofConfig, ...(path === undefined ? [] : await readReleaseKeys(path))];
  const program = await realpath(process.argv[1] ?? process.execPath);
  const platform = `${process.platform}-${process.arch}`;
  return { releaseKeys, program, version: daemonVersion, platform, dataDir, leave: end };
}

/** null for a machine of its own. Who has not joined is nothing yet; the daemon itself says what is missing. */
async function siteOf(
  role: Identity['role'] | undefined,
  { dataDir, config, log }: { dataDir: string; config: DaemonConfig; log: AgentLog },
): Promise<SiteAgentProcess | null> {
  if (role === 'site') return openSiteAgent({ dataDir, config, log });
  if (config.site !== undefined) log.warn({ role }, 'the section site of the configuration is for site agents, and this is none');
  return null;
}

function serveMetrics(daemon: RunningDaemon, at: { host: string; port: number }) {
  const health = createHealth({ process: 'bcd' });
  health.check('gateway', () => {
    if (!daemon.isConnected()) throw new ControlError('UNAVAILABLE', 'no session with a gateway', { details: { reason: 'not-connected' } });
  });
  return health.listen(at);
}

function whole(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new InvalidArgumentError('It must be a whole number of milliseconds above 0.');
  return Number(value);
}

function listenAddress(value: string): string {
  if (parseListenAddress(value) === null) throw new InvalidArgumentError(`It must be ${listenAddressForm}.`);
  return value;
}

function port(value: string): number {
  if (!/^\d{1,5}$/.test(value) || Number(value) > 65_535) throw new InvalidArgumentError('It must be a port number from 0 to 65535.');
  return Number(value);
}

function webSocketUrl(value: string): string {
  if (isWebSocketUrl(value)) return value;
  throw new InvalidArgumentError(`It ${webSocketUrlForm}.`);
}
