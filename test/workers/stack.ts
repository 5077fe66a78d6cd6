/**
 * The two workers as processes, with a real database, a real Temporal, a real bundle file and the api's own key keeper; the fleet is rows of the
 * database that behave as gateways and daemons make them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { type KeyKeeper, startKeyKeeper } from '../../api/key-keeper.ts';
import type { RotationTimes } from '../../domain/rotation/gates.ts';
import { day } from '../../domain/time.ts';
import { type Database, instant } from '../../drizzle/client.ts';
import { readOpenCommands, recordAcks, recordResults } from '../../drizzle/queries/dispatch.ts';
import { insertNodeRow } from '../../drizzle/queries/nodes.ts';
import { touchSessions } from '../../drizzle/queries/session-touch.ts';
import { openSession } from '../../drizzle/queries/sessions.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { createBundle, encodeBundle } from '../../pki/bundle/index.ts';
import { createBundleFileStore } from '../../runtime/bundle-file-store.ts';
import { deriveCodecKey } from '../../runtime/codec-key.ts';
import { demonstrationTimesName } from '../../runtime/config.ts';
import { createLogger } from '../../runtime/log.ts';
import { createDataConverter } from '../../runtime/payload-codec.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const secret = 'a secret of at least thirty-two characters';
const trustDomain = 'fleet.example';

export interface WorkerChild {
  readonly pid: number;
  readonly addresses: Readonly<Record<string, string>>;
  /** Everything it wrote to its log. */
  log(): string;
  /** Its exit code; null: by a signal. */
  readonly exited: Promise<number | null>;
  kill(signal: NodeJS.Signals): Promise<number | null>;
}

export interface StackOptions {
  readonly db: Database;
  readonly url: string;
  readonly temporalAddress: string;
  readonly times: RotationTimes;
}

export interface TestStack {
  readonly client: Client;
  readonly bundlePath: string;
  readonly auditKey: () => Uint8Array;
  startWorker(name: 'control' | 'signing', env?: Record<string, string>): Promise<WorkerChild>;
  stop(): Promise<void>;
}

export async function startStack(options: StackOptions): Promise<TestStack> {
  const { db, times } = options;
  const home = mkdtempSync(join(tmpdir(), 'bc-stack-'));
  const bundlePath = join(home, 'pki.json');
  const store = createBundleFileStore(bundlePath, { watchIntervalMs: 100 });
  await store.create(encodeBundle(await createBundle({ trustDomain, now: Date.now() }), { secret }));
  const keys = await keepKeys(db, store, times);
  const connection = await Connection.connect({ address: options.temporalAddress });
  const children: WorkerChild[] = [];
  return {
    client: new Client({ connection, dataConverter: createDataConverter(deriveCodecKey(secret)) }),
    bundlePath,
    auditKey: () => keys.current().auditSigning?.spki ?? new Uint8Array(0),
    async startWorker(name, env = {}) {
      const child = await startWorker(name, { ...envOf(name, { ...options, bundlePath }), ...env });
      children.push(child);
      return child;
    },
    async stop() {
      await Promise.all(children.map((child) => child.kill('SIGTERM')));
      await keys.close();
      await connection.close();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

const keepKeys = (db: Database, store: ReturnType<typeof createBundleFileStore>, times: RotationTimes): Promise<KeyKeeper> =>
  startKeyKeeper({
    db,
    store,
    secret,
    allowUnauthenticated: false,
    trustDomain,
    floorOption: 0,
    times,
    process: { id: 'api@test:1', host: 'test', pid: 1, version: '0.1.0' },
    log: createLogger({ process: 'test', level: 'fatal' }),
    now: Date.now,
  });

function envOf(
  name: 'control' | 'signing',
  { url, temporalAddress, times, bundlePath }: StackOptions & { bundlePath: string },
): Record<string, string> {
  const shared = {
    PATH: process.env['PATH'] ?? '',
    HOME: process.env['HOME'] ?? '',
    BETTER_COMPUTE_DATABASE_URL: url,
    BETTER_COMPUTE_READY: 'json',
    BETTER_COMPUTE_EXIT_WITH_PARENT: '1',
    BETTER_COMPUTE_METRICS_PORT: '0',
    BETTER_COMPUTE_CODEC_KEY: deriveCodecKey(secret),
    TEMPORAL_ADDRESS: temporalAddress,
  };
  if (name === 'control') return shared;
  const demonstration = `yes-for-demonstrations-only:${times.overlapMs},${times.dropMarginMs},${times.workerLifetimeMs}`;
  return { ...shared, BETTER_COMPUTE_SECRET: secret, BETTER_COMPUTE_PKI: bundlePath, [demonstrationTimesName]: demonstration };
}

/** Started as an operator's supervisor would; resolves with the ready line, rejects with what it said instead. */
async function startWorker(name: 'control' | 'signing', env: Record<string, string>): Promise<WorkerChild> {
  const child = spawn(process.execPath, ['scripts/run.mjs', `workers/${name}`], { cwd: root, env, stdio: ['pipe', 'pipe', 'pipe'] });
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => {
    log += chunk.toString();
  });
  const exited = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  const ready = await readyLine(child, exited, () => log);
  return {
    pid: child.pid ?? 0,
    addresses: ready,
    log: () => log,
    exited,
    async kill(signal) {
      child.kill(signal);
      return exited;
    },
  };
}

function readyLine(child: ChildProcess, exited: Promise<number | null>, log: () => string): Promise<Record<string, string>> {
  return new Promise((resolve, reject) => {
    let out = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      out += chunk.toString();
      const line = out.split('\n')[0];
      if (out.includes('\n') && line !== undefined) resolve((JSON.parse(line) as { addresses: Record<string, string> }).addresses);
    });
    void exited.then((code) => reject(new Error(`exit ${code}: ${log()}`)));
  });
}

const killer = fileURLToPath(new URL('../harness/kill-at-activity.mjs', import.meta.url));

/** The environment of a worker that is killed once at each of these points (`activity.before`, `activity.after`). @param folder says which were met */
export const killedAt = (points: readonly string[], folder: string): Record<string, string> => ({
  NODE_OPTIONS: `--import=${killer}`,
  KILL_POINTS: points.join(','),
  KILL_FOLDER: folder,
});

/** As a supervisor does: started again whenever it ends, until life is over. */
export async function keepStarted(
  stack: TestStack,
  name: 'control' | 'signing',
  { life, env }: { readonly life: { readonly over: boolean }; readonly env: Record<string, string> },
): Promise<void> {
  while (!life.over) await (await stack.startWorker(name, env)).exited;
}

export interface RowNode {
  readonly nodeId: string;
  readonly sessionId: string;
  readonly epoch: number;
}

/** A node with a certificate and a session, as a join and a gateway leave them. */
export async function addNode(db: Database, nodeId: string): Promise<RowNode> {
  const now = Date.now();
  const serial = randomBytes(15).toString('hex');
  const sessionId = randomUUID();
  await db.transaction(async (tx) => void (await insertNodeRow(tx, { id: nodeId, siteId: 'berlin', role: 'node', now })));
  await db.query(
    {
      text: `insert into node_certs (issuer, serial, node_id, site_id, spiffe_id, role, generation, spki_sha256, cert_der, not_before, not_after, issued_at)
             values ('ca', $1, $2, 'berlin', $3, 'node', 1, $4, $4, $5, $6, $5)`,
    },
    [
      serial,
      nodeId,
      `spiffe://${trustDomain}/site/berlin/node/${nodeId}`,
      createHash('sha256').update(nodeId).digest(),
      instant(now),
      instant(now + day),
    ],
  );
  const { epoch } = await openSession(db, {
    sessionId,
    nodeId,
    gatewayId: 'gateway-1',
    role: 'node',
    certIssuer: 'ca',
    certSerial: serial,
    peer: '192.0.2.7:40000',
    bootId: 'boot-1',
    daemonVersion: '0.1.0',
    protoMax: 1,
    capabilities: [],
    trustVersion: null,
    now,
  });
  return { nodeId, sessionId, epoch };
}

/** One turn of a gateway and its daemons: takes what is published, runs what is open. */
export async function turn(db: Database, nodes: readonly RowNode[], options: { run?: boolean } = {}): Promise<number> {
  const now = Date.now();
  const published = await publishedTrust(db);
  await touchSessions(
    db,
    nodes.map(({ sessionId, nodeId, epoch }) => ({
      sessionId,
      nodeId,
      epoch,
      lastSeenAt: now,
      ...(published === null ? {} : { trustVersion: published.version }),
    })),
  );
  if (options.run === false) return 0;
  const open = await readOpenCommands(
    db,
    nodes.map(({ nodeId }) => ({ nodeId, afterSeq: 0 })),
    50,
  );
  const epochOf = new Map(nodes.map((node) => [node.nodeId, node.epoch]));
  const rows = open.map(({ nodeId, id, seq, body }) => ({ nodeId, epoch: epochOf.get(nodeId) ?? 0, commandId: id, seq, body }));
  await recordAcks(db, rows, now);
  await recordResults(
    db,
    rows.map((row) => ({
      ...row,
      outcome: 1,
      payload: null,
      errorCode: '',
      errorMessage: '',
      startedAt: now,
      finishedAt: now,
      bodySha256: createHash('sha256').update(row.body).digest(),
    })),
    now,
  );
  return rows.length;
}

/** Turns until stopped. */
export function keepTurning(
  db: Database,
  nodes: readonly RowNode[],
  options: { run?: boolean } = {},
): { stop(): Promise<void>; ran(): number } {
  const life = { stopped: false };
  let count = 0;
  const loop = (async () => {
    while (!life.stopped) {
      count += await turn(db, nodes, options);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  return {
    ran: () => count,
    async stop() {
      life.stopped = true;
      await loop;
    },
  };
}
