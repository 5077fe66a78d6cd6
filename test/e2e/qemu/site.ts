/**
 * A control plane and a site agent in one process: PostgreSQL, the gateway, the services behind it and the site's handlers are the real
 * ones; what a workflow would do is done by hand, so that the chain shows the machine's side.
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { create, type DescMessage, fromBinary, type Message, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { parseDaemonConfig } from '../../../daemon/config.ts';
import { joinNode } from '../../../daemon/join.ts';
import { startDaemon } from '../../../daemon/run.ts';
import { createBmcHandlers } from '../../../daemon/site/bmc/handlers.ts';
import { createBootHandlers } from '../../../daemon/site/boot/handlers.ts';
import { type BootServer, createBootServer } from '../../../daemon/site/boot/server.ts';
import { siteSection } from '../../../daemon/site/config.ts';
import { kernelBootId } from '../../../daemon/state/boot-id.ts';
import { neverCrash } from '../../../daemon/state/crash-points.ts';
import { type CommandKind, commandKinds } from '../../../domain/commands/kinds.ts';
import { day, hour, minute } from '../../../domain/time.ts';
import type { Database } from '../../../drizzle/client.ts';
import { createGateway } from '../../../gateway/gateway.ts';
import { createPostgresStore } from '../../../gateway/session/store-postgres.ts';
import { createBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { encodePem, issueLeaf, spkiOf, spkiPin } from '../../../pki/x509/index.ts';
import { CommandOutcome, protocolRegistry } from '../../../proto/index.ts';
import { enqueueCommands } from '../../../services/command-queue.ts';
import { createGatewayServices } from '../../../services/gateway-services.ts';
import { openBoot, openProvisionedJoin } from '../../../services/metal/run-secrets.ts';
import { createSecretResolver } from '../../../services/secrets/providers.ts';
import { setSecret } from '../../../services/secrets/store.ts';
import { createJoinToken } from '../../../services/tokens.ts';
import { settleAndPublish } from '../../../services/trust-publication.ts';
import { addNode, keyring, recordingLog } from '../../services/support.ts';

export const [machineId, runId, siteId] = ['metal-1', randomBytes(6).toString('hex'), 'berlin'];
const trustDomain = 'qemu.test';
const secret = 'a development secret of this run alone, 32 characters';
/** Where the guest sees the host's loopback. */
export const hostOfGuest = '10.0.2.2';

export interface Site {
  readonly db: Database;
  readonly boot: BootServer;
  /** Opens a boot of the run and the join of the deployed system. */
  openRun(): Promise<{ readonly entryId: string; readonly bootNonce: string; readonly tokenRef: string; readonly joinRef: string }>;
  storeCredential(value: string): Promise<void>;
  /** Sends a command and waits for its result. */
  command(asked: Asked, result: DescMessage): Promise<Message>;
  /** Role and generation of the machine's session; undefined: it has none. */
  session(): Promise<{ readonly role: string; readonly generation: number } | undefined>;
  stop(): Promise<void>;
}

export interface Asked {
  readonly step: string;
  readonly nodeId: string;
  readonly kind: CommandKind;
  readonly payload: Record<string, unknown>;
}

export async function startSite(db: Database, folder: string): Promise<Site> {
  const now = Date.now;
  const bundle = await createBundle({ trustDomain, now: now() - minute });
  const log = recordingLog();
  await settleAndPublish({ db, bundle, floorOption: 0, overlapMs: day, processId: 'e2e', now: now(), log });
  const worker = await keyring(db, { bundle: () => bundle, now, processId: 'worker-signing@e2e:1' });
  const resolve = createSecretResolver(db, { secret, vault: null, environment: { allowed: [], values: {} } });
  const gateway = createGateway({
    tls: await servingTls(bundle),
    trustDomain,
    gatewayId: 'gw-1',
    store: createPostgresStore(db, now),
    connectListener: () => db.connect(),
    services: createGatewayServices({ db, bundle: () => bundle, secrets: resolve, log, now }),
  });
  const { port } = await gateway.listen({ host: '127.0.0.1', port: 0 });
  const boot = await createBootServer({
    config: siteSection.parse({ boot: { host: hostOfGuest, listen: '127.0.0.1', httpPort: 0, folder, kernelArgs: 'console=ttyS0' } })
      .boot as never,
    stateFolder: join(folder, 'boot-state'),
    wallMs: now,
    log: quiet,
  });
  const pins = {
    gateway: `https://127.0.0.1:${port}`,
    serverName: 'gw.test',
    servingCaPin: spkiPin(bundle.servingCa.spki),
    joinKey: bundle.joinSigning.spki,
    trustDomain,
  };
  const agent = await startAgent({ db, bundle, folder, pins, boot });
  const workflowId = `machine/${machineId}/provision`;
  return {
    db,
    boot,
    async openRun() {
      await addMachine(db);
      const entry = await openBoot(db, { runId, attempt: 1, expiresAt: now() + hour }, { secret, now: now() });
      const outside = { ...pins, gateway: `https://${hostOfGuest}:${port}` };
      const joinRef = await openProvisionedJoin(db, runId, {
        joinEncryption: bundle.joinEncryption.spki,
        pins: outside,
        secret,
        now: now(),
      });
      return { ...entry, joinRef };
    },
    storeCredential: async (value) =>
      void (await db.transaction((tx) =>
        setSecret(tx, { path: `bmc/${machineId}`, value: Buffer.from(value), secret, actor: 'e2e', now: now() }),
      )),
    async command({ step, nodeId, kind, payload }, result) {
      const id = `${workflowId}/${runId}/${step}`;
      const schema = protocolRegistry.getMessage(commandKinds[kind].payload) as DescMessage;
      const any = anyPack(schema, create(schema, payload));
      const request = { id, nodeId, kind, payload: toBinary(AnySchema, any), deadlineMs: now() + hour, requestedBy: 'e2e' };
      await enqueueCommands({ db, worker, trustDomain, now: now(), commands: [request] });
      return resultOf(db, id, result);
    },
    async session() {
      const [row] = await db.query<{ role: string; generation: number }>(
        {
          text: `select s.role, c.generation::int as generation from node_sessions s join node_certs c on c.serial = s.cert_serial where s.node_id = $1 and s.ended_at is null`,
        },
        [machineId],
      );
      return row;
    },
    async stop() {
      await agent.stop();
      await boot.close();
      await gateway.close();
    },
  };
}

const quiet = { debug: () => undefined, info: () => undefined, warn: say, error: say };
function say(facts: object, message: string): void {
  process.stderr.write(
    `  ${message} ${JSON.stringify(facts, (_key, value: unknown) => (value instanceof Error ? value.message : value))}\n`,
  );
}

async function servingTls(bundle: PkiBundle) {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { servingCa, nodeCa } = bundle;
  const ca = { certificate: servingCa.certificate.der, signer: servingCa.signer() };
  const leaf = await issueLeaf({
    ca,
    profile: 'gateway',
    spki: spkiOf(publicKey),
    sans: { dns: ['gw.test'], ips: ['127.0.0.1'] },
    now: Date.now(),
  });
  return {
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    cert: encodePem('CERTIFICATE', leaf.der) + encodePem('CERTIFICATE', servingCa.certificate.der),
    ca: encodePem('CERTIFICATE', nodeCa.certificate.der),
  };
}

interface AgentOptions {
  readonly db: Database;
  readonly bundle: PkiBundle;
  readonly folder: string;
  readonly pins: {
    readonly gateway: string;
    readonly serverName: string;
    readonly servingCaPin: string;
    readonly joinKey: Uint8Array;
    readonly trustDomain: string;
  };
  readonly boot: BootServer;
}

async function startAgent({ db, bundle, folder, pins, boot }: AgentOptions): Promise<{ stop(): Promise<void> }> {
  const { token } = await createJoinToken({
    db,
    trustDomain,
    joinEncryption: bundle.joinEncryption.spki,
    siteId,
    role: 'site',
    nodeId: 'site-agent',
    lifetimeMs: hour,
    actor: 'e2e',
    now: Date.now(),
  });
  const dataDir = join(folder, 'site-agent');
  await joinNode({
    dataDir,
    role: 'site',
    attestor: 'join-token',
    evidence: null,
    replace: false,
    patienceMs: minute,
    bundle: { ...pins, token },
    host: { root: '/', readBootId: () => kernelBootId.read() },
    random: Math.random,
    now: Date.now,
    say: () => undefined,
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  });
  return startDaemon({
    dataDir,
    config: parseDaemonConfig('config', '{}'),
    simulateReboot: false,
    minOverlapMs: day,
    log: quiet,
    crash: neverCrash,
    onFailed: (error) => say({ error }, 'the site agent failed'),
    roleHandlers({ identity, secrets }) {
      // The guest reaches the gateway by another address than this process does.
      const stored = () => ({
        ...identity.current,
        identity: { ...identity.current.identity, gatewayUrl: pins.gateway.replace('127.0.0.1', hostOfGuest) },
      });
      boot.attach({ stored, secrets, now: Date.now, refused: (reason, detail) => say({ reason, detail }, 'refused') });
      return {
        handlers: {
          ...createBmcHandlers({ secrets, config: { insecureHttp: [] }, now: Date.now }),
          ...createBootHandlers({ desk: boot.desk }),
        },
      };
    },
  });
}

async function addMachine(db: Database): Promise<void> {
  await addNode(db, machineId);
  await db.query({ text: `insert into machines (id, site_id, state, created_by) values ($1, $2, 'provisioning', 'e2e')` }, [
    machineId,
    siteId,
  ]);
  const plan = { siteId, tenantId: 'default', bmc: { credentialRef: `secret://bmc/${machineId}` } };
  await db.query(
    {
      text: `insert into metal_runs (id, machine_id, kind, workflow_id, workflow_run_id, machine_state, actor, plan, started_at)
             values ($1, $2, 'provision', $3, $1, 'available', 'e2e', $4, now())`,
    },
    [runId, machineId, `machine/${machineId}/provision`, JSON.stringify(plan)],
  );
}

async function resultOf(db: Database, id: string, schema: DescMessage): Promise<Message> {
  const until = performance.now() + 5 * minute;
  for (;;) {
    const [row] = await db.query<{ outcome: CommandOutcome; payload: Uint8Array | null; code: string; message: string }>(
      { text: 'select outcome, payload, error_code as code, error_message as message from node_results where command_id = $1' },
      [id],
    );
    if (row !== undefined) {
      if (row.outcome !== CommandOutcome.SUCCEEDED) throw new Error(`${id}: ${row.code} ${row.message}`);
      return anyUnpack(fromBinary(AnySchema, row.payload ?? new Uint8Array()), schema) as Message;
    }
    const [rejected] = await db.query<{ detail: string }>(
      { text: `select state::text as detail from node_commands where id = $1 and state >= 4` },
      [id],
    );
    if (rejected !== undefined) throw new Error(`${id} ended without a result, in state ${rejected.detail}`);
    if (performance.now() > until) throw new Error(`${id} has no result`);
    await new Promise((done) => setTimeout(done, 100));
  }
}
