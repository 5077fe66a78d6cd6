import assert from 'node:assert/strict';
import { day, hour, minute, showInstant } from '../../../domain/time.ts';
import type { Database } from '../../../drizzle/client.ts';
import { openSession } from '../../../drizzle/queries/sessions.ts';
import { bundleDigest, openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { recordHeartbeat } from '../../../services/processes.ts';
import { readOverrides } from '../../../services/rotations.ts';
import { settleAndPublish } from '../../../services/trust-publication.ts';
import { sharedServer, type TestDatabase } from '../../harness/postgres.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { type EnrolledNode, enrol, sessionOf } from '../../services/support.ts';
import { type Bench, createBench } from './harness.ts';

const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** One rotation by hand against a real database, with the bundle in its row. The clock of the host is off by months: nothing is judged by it. */
describe('the pki commands over a real database', function () {
  this.timeout(60_000);
  let database: TestDatabase;
  let db: Database;
  let bench: Bench;
  before(async () => {
    database = await (await sharedServer()).createMigrated();
    db = database.connect();
    bench = createBench();
    bench.env['BETTER_COMPUTE_DATABASE_URL'] = database.url;
    bench.env['BETTER_COMPUTE_PKI'] = 'database';
  });
  after(async () => {
    bench.close();
    await db.close();
    await database.drop();
  });

  const stored = async (): Promise<PkiBundle> => {
    const [row] = await db.query<{ document: string }>({ text: 'select document from pki_bundle' });
    return openBundle(row?.document ?? '', { secret });
  };
  /** What an api does when it sees the bundle change, and a node when it is told. */
  const rollOut = async (at: number): Promise<number> => {
    const bundle = await stored();
    const { version } = await settleAndPublish({ db, bundle, floorOption: 0, overlapMs: day, processId: 'api-1', now: at, log: quiet });
    const process = {
      id: 'api-1',
      kind: 'api',
      host: 'h',
      pid: 1,
      version: '0',
      bundleDigest: bundleDigest(bundle),
      bundleGeneration: bundle.generation,
      trustVersionSeen: null,
    } as const;
    await recordHeartbeat(db, process);
    return version;
  };
  const enrolled = new Map<string, EnrolledNode>();
  const connect = async (nodeId: string, trustVersion: number | null): Promise<void> => {
    const node = enrolled.get(nodeId) ?? (await enrol(db, nodeId));
    enrolled.set(nodeId, node);
    await openSession(db, sessionOf(node, { trustVersion, now: null }));
  };
  const stage = (name: string, ...flags: string[]) => bench.run('pki', 'rotate-command-root', '--stage', name, ...flags);

  it('CLI-001 CLI-072 creates the bundle in its row; nothing is published yet', async () => {
    const run = await bench.run('pki', 'init', '--trust-domain', trustDomain);
    assert.deepEqual([run.exitCode, run.err], [0, 'wrote the key bundle in the database\n']);
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 4);
    assert.equal((await bench.run('pki', 'show')).out, run.out);
    assert.equal((await bench.run('pki', 'trust-version')).exitCode, 5);
  });

  it('ROT-004 ROT-020 ROT-021 ROT-023 ROT-024 switch waits for the publication, then for the node that is behind', async () => {
    assert.equal(await rollOut(now), 1);
    await connect('node_new', 1);
    await connect('node_old', 1);
    assert.equal((await stage('add')).exitCode, 0);
    assert.match(
      (await stage('switch')).err,
      /^error: Not switching: the deployment still publishes trust version 1 without the new root\n/,
    );
    assert.equal(await rollOut(now), 2);
    await connect('node_new', 2);
    assert.match((await stage('switch')).err, /1 of 2 connected node\(s\) have not applied it \(node_old at 1\)/);
    await connect('node_old', 2);
    assert.equal((await stage('switch')).exitCode, 0);
  });

  it('CLI-061 CLI-071 C40 trust-version counts over real sessions', async () => {
    await connect('node_old', 1);
    const report = JSON.parse((await bench.run('pki', 'trust-version', '--json')).out) as Record<string, unknown>;
    assert.deepEqual(
      [report['version'], report['configurationMatches'], report['nextVersion'], report['connected'], report['behind'], report['versions']],
      [2, true, 2, 2, 1, { '1': 1, '2': 1 }],
    );
    assert.deepEqual(
      (report['oldest'] as { nodeId: string }[]).map(({ nodeId }) => nodeId),
      ['node_old', 'node_new'],
    );
  });

  it('H-03 drop waits for the last worker key of the old root', async () => {
    const { rotation } = (await stored()).commandRoots;
    const [last] = await db.query<{ notAfter: number }>(
      {
        text: `insert into worker_certs (serial, root_id, process_id, not_before, not_after)
               values ('01', $1, 'w', now(), now() + interval '25 hours') returning not_after as "notAfter"`,
      },
      [rotation?.oldRoot],
    );
    const opens = showInstant((last?.notAfter ?? 0) + 2 * minute);
    const { err } = await stage('drop');
    assert.match(err, new RegExp(`^error: the old root can be dropped from ${opens} \\(in (1 d 1 h|25 h)`), err);
  });

  it('H-08 a forced drop is in the bundle and in the audit trail', async () => {
    const { rotation } = (await stored()).commandRoots;
    assert.equal((await stage('drop', '--force', '--reason', 'the key leaked')).exitCode, 0);
    const after = await stored();
    assert.deepEqual([after.commandRootsById.size, after.commandRoots.removed[0]?.forcedReason], [1, 'the key leaked (ada)']);
    const [override] = await readOverrides(db, rotation?.id ?? '');
    assert.deepEqual([override?.kind, override?.subject, override?.actor, override?.reason], ['force', 'drop', 'ada', 'the key leaked']);
    const [event] = await db.query<{ n: number }>({ text: `select count(*)::int as n from audit_events where action = 'rotation.force'` });
    assert.equal(event?.n, 1);
    assert.equal(await rollOut(now + 25 * hour), 3);
  });

  it('CLI-037 reseal works on the row too', async () => {
    const before = await stored();
    assert.deepEqual([(await bench.run('pki', 'reseal')).exitCode, (await stored()).generation], [0, before.generation + 1]);
  });
});
