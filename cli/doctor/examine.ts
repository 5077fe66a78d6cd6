/**
 * Gathers what doctor judges. Every source may be down: then it is a finding, and whatever does not need it is still judged.
 * Nothing is written anywhere: a look must not change what it looks at.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { pendingMigrations, readMigrations } from '../../drizzle/migrate.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { bundleDigest, type PublicBundle } from '../../pki/bundle/index.ts';
import { type FleetAhead, readFleetAhead } from '../../services/freshness.ts';
import { readMachineHealth } from '../../services/metal/health.ts';
import { countMachines } from '../../services/metal/machine-views.ts';
import { getTrust, type TrustView } from '../../services/operator-reads.ts';
import { listProcesses } from '../../services/processes.ts';
import { listFailedSections } from '../../services/section-faults.ts';
import type { Settings } from '../settings.ts';
import { examineApprovers } from './examine-approvers.ts';
import { examineSigners } from './examine-signers.ts';
import { examineTemporal } from './examine-temporal.ts';
import { examineWorkload } from './examine-workload.ts';
import { error, type Finding, messageOf, ok } from './finding.ts';
import { judgeBundle } from './judge-bundle.ts';
import { judgeFreshness, judgeProcesses, judgeSections, judgeTrust } from './judge-deployment.ts';
import { judgeClock, judgeGatewayFiles, judgeNode } from './judge-host.ts';
import { judgeMachines } from './judge-machines.ts';

export interface Examination {
  readonly settings: Settings;
  /** Another bundle than the deployment's; null for that one. */
  readonly pki: string | null;
  readonly nodeVersion: string;
  /** Of this command: what it says about approvers is compared with what is published. */
  readonly env: NodeJS.ProcessEnv;
  now(): number;
}

export async function examine(examination: Examination): Promise<Finding[]> {
  const { settings, nodeVersion, now } = examination;
  const env = settings.temporalEnv();
  const [fromDatabase, fromTemporal, fromIssuer] = await Promise.all([
    examineDatabase(examination),
    examineTemporal(env),
    examineWorkload(env),
  ]);
  const files = {
    certificate: readOrNull(join(settings.tlsFolder, 'gateway.crt')),
    key: readOrNull(join(settings.tlsFolder, 'gateway.key')),
    folder: settings.tlsFolder,
  };
  return [judgeNode(nodeVersion), ...fromDatabase, ...fromTemporal, ...fromIssuer, ...judgeGatewayFiles(files, now())];
}

async function examineDatabase(examination: Examination): Promise<Finding[]> {
  const url = examination.settings.databaseUrl();
  if (url === null) {
    const fix = 'better-compute start, or set BETTER_COMPUTE_DATABASE_URL';
    return [
      error('database.unknown', 'no database is known: the stack is not running here and BETTER_COMPUTE_DATABASE_URL is not set', fix),
      ...(await bundleAlone(examination)),
    ];
  }
  const db = createDatabase(url, { applicationName: 'better-compute doctor', max: 2, connectTimeoutMs: 3_000, statementTimeoutMs: 5_000 });
  try {
    return await examineOpen(examination, db);
  } catch (cause) {
    const fix = 'start PostgreSQL, or correct BETTER_COMPUTE_DATABASE_URL';
    return [error('database.unreachable', `the database does not answer: ${messageOf(cause)}`, fix), ...(await bundleAlone(examination))];
  } finally {
    await db.close();
  }
}

/** The bundle can be judged without anything else; the fleet's part of it stays unknown. */
async function bundleAlone({ settings, pki, now }: Examination): Promise<readonly Finding[]> {
  const judged = judgeBundle({ ...(await readBundle(settings, pki, null)), secret: settings.secret(), now: now(), fleet: null });
  return [...judged.findings, ...(await examineSigners(judged.bundle, settings.temporalEnv()))];
}

async function examineOpen(examination: Examination, db: Database): Promise<Finding[]> {
  const { settings, pki, env, now } = examination;
  const before = now();
  // Whatever the database wrote is judged by the database's clock; how far this host's is off is a finding of its own.
  const at = await databaseNow(db);
  const clockFinding = judgeClock((before + now()) / 2, at);
  const migrations = await judgeMigrations(db);
  if (migrations.severity === 'error') return [migrations, clockFinding, ...(await bundleAlone(examination))];
  const trust = await getTrust(db, at).catch((): TrustView | null => null);
  const judged = judgeBundle({ ...(await readBundle(settings, pki, db)), secret: settings.secret(), now: at, fleet: trust });
  return [
    migrations,
    clockFinding,
    ...judged.findings,
    ...(await examineSigners(judged.bundle, settings.temporalEnv())),
    judgeTrust(trust),
    ...(await examineApprovers(db, { env, trustDomain: judged.bundle?.trustDomain ?? null })),
    ...judgeProcesses(await listProcesses(db), at),
    ...judgeSections(await listFailedSections(db, { now: at, limit: sectionsRead })),
    ...judgeMachines(await readMachineHealth(db, at), { machines: await machinesOf(db), now: at }),
    ...judgeFreshness({ ...(await readFreshness(db)), bundle: identityOf(judged.bundle) }),
  ];
}

const sectionsRead = 100;

const machinesOf = async (db: Database): Promise<number> =>
  (await countMachines(db, 'all')).reduce((sum, { machines }) => sum + machines, 0);

async function judgeMigrations(db: Database): Promise<Finding> {
  const fix = 'start the api of this version, which migrates, or run the version that made the database';
  try {
    const [made] = await db.query<{ made: boolean }>({ text: "select to_regclass('schema_migrations') is not null as made" });
    const applied =
      made?.made === true
        ? await db.query<{ name: string; checksum: string }>({ text: 'select name, checksum from schema_migrations order by name' })
        : [];
    const pending = pendingMigrations(await readMigrations(), applied);
    if (pending.length === 0) return ok('database', `the database answers and has all ${applied.length} migration(s)`);
    return error('database.not-migrated', `the database lacks ${pending.length} migration(s), the first ${pending[0]?.name}`, fix);
  } catch (cause) {
    return error('database.migrations', messageOf(cause), fix);
  }
}

async function readBundle(settings: Settings, pki: string | null, db: Database | null): Promise<{ source: string; text: string | Error }> {
  if (pki === null && settings.bundleInDatabase) {
    const source = 'in the database';
    if (db === null) return { source, text: new Error('the database does not answer') };
    const [row] = await db.query<{ document: string }>({ text: 'select document from pki_bundle where id = 1' });
    return { source, text: row?.document ?? new Error('the table pki_bundle is empty') };
  }
  const source = pki ?? settings.bundlePath;
  try {
    return { source, text: readFileSync(source, 'utf8') };
  } catch (cause) {
    return { source, text: cause as Error };
  }
}

const identityOf = (bundle: PublicBundle | null): { generation: number; digest: string } | null =>
  bundle === null ? null : { generation: bundle.generation, digest: bundleDigest(bundle) };

async function readFreshness(db: Database): Promise<{ newest: { generation: number; digest: string } | null; fleet: FleetAhead }> {
  const [newest] = await db.query<{ generation: number; digest: string }>({
    text: 'select generation, digest from bundle_freshness where id = 1',
  });
  return { newest: newest ?? null, fleet: await readFleetAhead(db) };
}

function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
