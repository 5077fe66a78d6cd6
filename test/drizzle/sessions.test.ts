import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { judgeFleet } from '../../domain/rotation/gates.ts';
import { second } from '../../domain/time.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { touchSessions } from '../../drizzle/queries/session-touch.ts';
import {
  connectedNodeVersions,
  endSession,
  endSessionsOf,
  findOpenSession,
  fleetFacts,
  openSession,
  openSessionsOf,
} from '../../drizzle/queries/sessions.ts';
import { getNode } from '../../services/operator-reads.ts';
import { listProcesses, recordHeartbeat } from '../../services/processes.ts';
import { revokeNode } from '../../services/revocation.ts';
import { listFailedSections } from '../../services/section-faults.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, certify, connect, enrol, newKey, refused, sessionOf, t0 } from '../services/support.ts';

describe('opening a session', () => {
  const used = useDatabase();

  it('B51 ends the earlier session of the node and raises the epoch', async () => {
    const node = await enrol(used.db, 'opens-twice');
    const first = await connect(used.db, node, { gatewayId: 'gw-1' });
    const second = await connect(used.db, node, { gatewayId: 'gw-2' });
    assert.deepEqual([first.epoch, second.epoch], [1, 2]);
    const [row] = await used.db.query<{ reason: string }>({ text: 'select end_reason as reason from node_sessions where id = $1' }, [
      first.sessionId,
    ]);
    assert.equal(row?.reason, 'superseded');
    assert.equal((await findOpenSession(used.db, node.id))?.gatewayId, 'gw-2');
  });

  it('B51 starts above what the daemon has seen, so that a restored database is not stale to it', async () => {
    const node = await enrol(used.db, 'opens-after-restore');
    const epochs: number[] = [];
    for (const epochSeen of [undefined, 0, 41, 7, 2 ** 52 - 1, 2 ** 52 - 1]) {
      epochs.push((await connect(used.db, node, epochSeen === undefined ? {} : { epochSeen })).epoch);
    }
    assert.deepEqual(epochs, [1, 2, 42, 43, 44, 45], 'and numbers that no restore explains move nothing');
    const fresh = await enrol(used.db, 'opens-without-row');
    await used.db.query({ text: `delete from node_queue where node_id = 'opens-without-row'` });
    assert.equal((await connect(used.db, fresh, { epochSeen: 9 })).epoch, 10);
  });

  it('gives 20 parallel sessions of one node 20 epochs and leaves one open', async function () {
    this.timeout(20_000);
    const node = await enrol(used.db, 'opens-often');
    const opened = await Promise.all(Array.from({ length: 20 }, () => connect(used.db, node)));
    assert.deepEqual(
      opened.map((session) => session.epoch).sort((a, b) => a - b),
      Array.from({ length: 20 }, (_, index) => index + 1),
    );
    const rows = await used.db.query({ text: 'select 1 from node_sessions where node_id = $1 and ended_at is null' }, [node.id]);
    assert.equal(rows.length, 1);
  });

  it('refuses a certificate without a row, of another node, and a node without the role', async () => {
    const node = await enrol(used.db, 'refusals');
    const other = await enrol(used.db, 'refusals-other');
    const table = [
      [{ certSerial: 'ab12' }, 'PERMISSION_DENIED', /certificate ab12 was not issued here/, 'unknown-certificate'],
      [{ certSerial: other.certificate.serial }, 'PERMISSION_DENIED', /belongs to another node than refusals/, 'foreign-certificate'],
      [{ role: 'site' }, 'PERMISSION_DENIED', /has role node, not site/, 'wrong-role'],
      [{ nodeId: 'nobody' }, 'PERMISSION_DENIED', /node nobody is not known here/, 'unknown-node'],
    ] as const;
    for (const [changes, code, message, reason] of table) {
      await assert.rejects(openSession(used.db, sessionOf(node, changes)), refused(code, message, reason));
    }
    assert.equal(await findOpenSession(used.db, node.id), undefined);
  });

  it('C26 refuses a serial that was reserved and never stored', async () => {
    const node = await enrol(used.db, 'reserved-only');
    await used.db.query({ text: 'update node_certs set cert_der = null where serial = $1' }, [node.certificate.serial]);
    await assert.rejects(openSession(used.db, sessionOf(node)), refused('PERMISSION_DENIED', /was not issued here/, 'unknown-certificate'));
  });

  it('REV-012 refuses a revoked certificate before any gateway has heard of it', async () => {
    const node = await enrol(used.db, 'revoked-at-open');
    await revokeNode({ db: used.db, nodeId: node.id, actor: 'olga', reason: 'lost', now: t0 });
    await assert.rejects(openSession(used.db, sessionOf(node)), refused('REVOKED', /node revoked-at-open was revoked/, 'node-revoked'));
  });

  it('refuses a certificate of an earlier identity generation', async () => {
    const node = await enrol(used.db, 'generation');
    await used.db.query({ text: 'update nodes set identity_generation = 2 where id = $1' }, [node.id]);
    await assert.rejects(
      openSession(used.db, sessionOf(node)),
      refused('INVALID_STATE', /generation 1, node generation is at 2/, 'generation-superseded'),
    );
    const fresh = { ...node, certificate: await certify(used.db, { id: node.id, key: newKey(), now: t0 }) };
    assert.equal((await openSession(used.db, sessionOf(fresh))).identityGeneration, 2);
  });

  it('SKEW-005 A-PRO-14 replaces the labels of the capabilities as a set, and leaves other labels', async () => {
    const node = await enrol(used.db, 'capable');
    await used.db.query({ text: `update nodes set labels = '{"rack": "r1"}' where id = $1` }, [node.id]);
    const labels = async () =>
      (await used.db.query<{ labels: object }>({ text: 'select labels from nodes where id = $1' }, [node.id]))[0]?.labels;
    await connect(used.db, node, { capabilities: ['commands', 'trust'] });
    assert.deepEqual(await labels(), { rack: 'r1', 'bc.dev/cap.commands': '1', 'bc.dev/cap.trust': '1' });
    await connect(used.db, node, { capabilities: ['commands', 'limits'] });
    assert.deepEqual(await labels(), { rack: 'r1', 'bc.dev/cap.commands': '1', 'bc.dev/cap.limits': '1' });
    await connect(used.db, node, { capabilities: [] });
    assert.deepEqual(await labels(), { rack: 'r1' });
  });
});

describe('presence', () => {
  const used = useDatabase();

  it('ROT-018 ROT-019 takes the version of Hello as it comes, and of a status report only when it is higher', async () => {
    const node = await enrol(used.db, 'raises');
    const version = async () => (await findOpenSession(used.db, node.id))?.trustVersion;
    const { sessionId } = await connect(used.db, node, { trustVersion: 7 });
    for (const [reported, expected] of [
      [5, 7],
      [9, 9],
      [8, 9],
      [null, 9],
    ] as const) {
      await touchSessions(used.db, [{ sessionId, lastSeenAt: t0 + 1, trustVersion: reported }]);
      assert.equal(await version(), expected, `after a report of ${reported}`);
    }
    await connect(used.db, node, { trustVersion: 3 });
    assert.equal(await version(), 3);
  });

  const setOf = async (nodeId: string) =>
    (
      await used.db.query<{ epoch: number | null; digest: string | null }>(
        {
          text: `select approver_set_epoch as epoch, encode(approver_set_sha256, 'hex') as digest from node_sessions
                 where node_id = $1 and ended_at is null`,
        },
        [nodeId],
      )
    )[0];
  const digest = (n: number): Uint8Array => new Uint8Array(32).fill(n);
  const held = (epoch: number | null, n: number) => ({
    epoch,
    digest: epoch === null ? null : Buffer.from(digest(n)).toString('hex'),
  });

  it('LAG-001 LAG-003 LAG-004 LAG-005 records the set of a report whose version is at least the recorded one, and none of any other', async () => {
    const node = await enrol(used.db, 'lags');
    const { sessionId } = await connect(used.db, node, { trustVersion: 7, approverSetEpoch: 1, approverSetSha256: digest(1) });
    assert.deepEqual(await setOf(node.id), held(1, 1));
    const report = (version: number, epoch: number | null, n: number) =>
      touchSessions(used.db, [
        {
          sessionId,
          lastSeenAt: t0 + 1,
          trustVersion: version,
          approverSet: { version, epoch, sha256: epoch === null ? null : digest(n) },
        },
      ]);
    await report(6, 9, 9);
    assert.deepEqual(await setOf(node.id), held(1, 1), 'a late older report');
    await report(7, 2, 2);
    assert.deepEqual(await setOf(node.id), held(2, 2), 'the same version');
    await report(8, 3, 3);
    await touchSessions(used.db, [{ sessionId, lastSeenAt: t0 + 2, trustVersion: null }]);
    assert.deepEqual(await setOf(node.id), held(3, 3), 'presence alone');
    await report(9, null, 0);
    assert.deepEqual(await setOf(node.id), held(null, 0), 'no keys any more');
    await touchSessions(used.db, [
      { sessionId, lastSeenAt: t0 + 3, trustVersion: 11, approverSet: { version: 11, epoch: 5, sha256: digest(5) } },
      { sessionId, lastSeenAt: t0 + 3, trustVersion: 10, approverSet: { version: 10, epoch: 4, sha256: digest(4) } },
    ]);
    assert.deepEqual(await setOf(node.id), held(5, 5), 'two in one batch');
  });

  it('LAG-002 LAG-005 the set of Hello is taken as it comes, a lower epoch and none at all too', async () => {
    const node = await enrol(used.db, 'hellos');
    await connect(used.db, node, { trustVersion: 7, approverSetEpoch: 4, approverSetSha256: digest(4) });
    await connect(used.db, node, { trustVersion: 3, approverSetEpoch: 2, approverSetSha256: digest(2) });
    assert.deepEqual(await setOf(node.id), held(2, 2));
    await connect(used.db, node, { trustVersion: 8, approverSetEpoch: null, approverSetSha256: null });
    assert.deepEqual(await setOf(node.id), held(null, 0));
  });

  it('SKEW-038 keeps what a session said last of its desired state, and nothing of one that was taken over', async () => {
    const node = await enrol(used.db, 'sections');
    const old = await connect(used.db, node);
    const current = await connect(used.db, node);
    const failed = (section: string) => ({ section, state: 'failed' as const, detail: `no "room" for ${section}` });
    const report = (sessionId: string, generation: number, ...faults: ReturnType<typeof failed>[]) =>
      touchSessions(used.db, [{ sessionId, lastSeenAt: Date.now(), sections: { generation, faults } }]);
    const found = async () => {
      const { session } = await getNode(used.db, node.id, Date.now());
      const listed = await listFailedSections(used.db, { now: Date.now(), limit: 10 });
      return [session?.specGeneration, session?.sections, listed.filter(({ nodeId }) => nodeId === node.id).map(({ section }) => section)];
    };
    assert.deepEqual(await found(), [null, [], []]);
    await report(current.sessionId, 3, failed('k8s-join'), failed('access'));
    assert.deepEqual(await found(), [3, [failed('k8s-join'), failed('access')], ['access', 'k8s-join']]);
    await report(old.sessionId, 9);
    await touchSessions(used.db, [{ sessionId: current.sessionId, lastSeenAt: Date.now() }]);
    assert.deepEqual((await found())[0], 3, 'neither an ended session nor presence alone');
    await report(current.sessionId, 4);
    assert.deepEqual(await found(), [4, [], []]);
    const other = { section: 'field-9', state: 'unsupported' as const, detail: '' };
    await touchSessions(used.db, [{ sessionId: current.sessionId, lastSeenAt: Date.now(), sections: { generation: 5, faults: [other] } }]);
    assert.deepEqual(await found(), [5, [other], []], 'what its owner or its age does not let it do has not failed');
    const again = await connect(used.db, node);
    assert.deepEqual(await found(), [null, [], []], 'a new session has not said yet');
    assert.ok(again.sessionId);
  });

  it('merges two reports of one session in one batch', async () => {
    const node = await enrol(used.db, 'merges');
    const { sessionId } = await connect(used.db, node, { trustVersion: 1 });
    await touchSessions(used.db, [
      { sessionId, lastSeenAt: t0 + 20, trustVersion: 4 },
      { sessionId, lastSeenAt: t0 + 10, daemonVersion: '0.2.0' },
    ]);
    const session = await findOpenSession(used.db, node.id);
    assert.deepEqual([session?.lastSeenAt, session?.trustVersion, session?.daemonVersion], [t0 + 20, 4, '0.2.0']);
  });

  it('B52 names sessions that ended meanwhile and leaves them as they were', async () => {
    const node = await enrol(used.db, 'stale-gateway');
    const old = await connect(used.db, node);
    const current = await connect(used.db, node);
    const { ended } = await touchSessions(used.db, [
      { sessionId: old.sessionId, lastSeenAt: t0 + 5, trustVersion: 99 },
      { sessionId: current.sessionId, lastSeenAt: t0 + 5 },
      { sessionId: randomUUID(), lastSeenAt: t0 + 5 },
    ]);
    assert.equal(ended.length, 2);
    assert.ok(ended.includes(old.sessionId));
    const [row] = await used.db.query<{ version: number }>({ text: 'select trust_version as version from node_sessions where id = $1' }, [
      old.sessionId,
    ]);
    assert.equal(row?.version, null);
  });

  it('ends sessions one by one and by gateway', async () => {
    const nodes = await Promise.all(['end-a', 'end-b', 'end-c'].map((id) => enrol(used.db, id)));
    const [a] = await Promise.all(nodes.map((node) => connect(used.db, node, { gatewayId: 'gw-ends' })));
    assert.equal((await openSessionsOf(used.db, 'gw-ends')).length, 3);
    await endSession(used.db, { sessionId: a!.sessionId, reason: 'closed', now: t0 + 1 });
    assert.equal(await endSessionsOf(used.db, { gatewayId: 'gw-ends', reason: 'gateway restarted', now: t0 + 2 }), 2);
    assert.deepEqual(await openSessionsOf(used.db, 'gw-ends'), []);
  });

  it('keeps presence writes inside their page: no index holds what they change', async () => {
    const indexes = await used.db.query<{ definition: string }>({
      text: `select indexdef as definition from pg_indexes where tablename in ('node_sessions', 'node_presence')`,
    });
    assert.deepEqual(
      indexes.filter(({ definition }) => definition.includes('last_seen_at')),
      [],
    );
  });
});

describe('the fleet gate', () => {
  const used = useDatabase();
  const facts = (version: number, now = t0, excluded: string[] = []) => fleetFacts(used.db, { version, now, excluded });

  it('C08 is closed on an empty fleet', async () => {
    for (const id of ['fleet-a', 'fleet-b', 'fleet-c', 'fleet-d']) await enrol(used.db, id);
    const empty = await facts(2);
    assert.deepEqual(empty, { connected: 0, behind: 0, lastPresenceWriteAt: null, knownNodes: 4, sample: [], absentNodes: 4 });
    const verdict = judgeFleet(empty, { version: 2, now: t0 });
    assert.equal(verdict.kind === 'closed' && verdict.reason, 'no-connected-node');
  });

  it('ROT-020 C03 C04 counts NULL, 0 and a lower version as behind, and names those first that never reported', async () => {
    const reported: [string, number | null][] = [
      ['fleet-a', 1],
      ['fleet-b', null],
      ['fleet-c', 2],
      ['fleet-d', 0],
    ];
    for (const [id, trustVersion] of reported) {
      const certificate = await certify(used.db, { id, key: newKey(), now: t0 });
      const [row] = await used.db.query<{ issuer: string }>({ text: 'select issuer from node_certs limit 1' });
      await connect(used.db, { id, key: newKey(), certificate, issuer: row!.issuer }, { trustVersion });
    }
    const now = await facts(2);
    assert.deepEqual([now.connected, now.behind], [4, 3]);
    assert.deepEqual(
      now.sample.map((node) => node.nodeId),
      ['fleet-b', 'fleet-d', 'fleet-a'],
    );
    const verdict = judgeFleet(now, { version: 2, now: t0 });
    assert.equal(
      verdict.kind === 'closed' && verdict.message,
      '3 of 4 connected node(s) have not applied it (fleet-b does not report (daemon 0.1.0), fleet-d does not report (daemon 0.1.0), fleet-a at 1)',
    );
  });

  it('ROT-025 C07 a session counts until 2 minutes after it was seen', async () => {
    assert.equal((await facts(2, t0 + 119 * second)).connected, 4);
    assert.equal((await facts(2, t0 + 121 * second)).connected, 0);
    const { sessionId } = (await findOpenSession(used.db, 'fleet-c'))!;
    await touchSessions(used.db, [{ sessionId, lastSeenAt: t0 + 100 * second }]);
    const later = await facts(2, t0 + 121 * second);
    assert.deepEqual([later.connected, later.behind, later.absentNodes, later.lastPresenceWriteAt], [1, 0, 3, t0 + 100 * second]);
    assert.deepEqual(judgeFleet(later, { version: 2, now: t0 + 121 * second }), { kind: 'open' });
  });

  it('leaves excluded nodes out, and never passes on those alone', async () => {
    const some = await facts(2, t0, ['fleet-b', 'fleet-d']);
    assert.deepEqual([some.connected, some.behind, some.sample.map((node) => node.nodeId)], [2, 1, ['fleet-a']]);
    const none = await facts(2, t0, ['fleet-a', 'fleet-b', 'fleet-c', 'fleet-d']);
    assert.equal(judgeFleet(none, { version: 2, now: t0 }).kind, 'closed');
  });

  it('an ended session does not count', async () => {
    const { sessionId } = (await findOpenSession(used.db, 'fleet-a'))!;
    await endSession(used.db, { sessionId, reason: 'closed', now: t0 });
    assert.equal((await facts(2)).connected, 3);
  });

  it('H-17 lists every connected node with what it reported', async () => {
    assert.deepEqual(await connectedNodeVersions(used.db, { now: t0, excluded: ['fleet-d'] }), [
      { nodeId: 'fleet-b', trustVersion: null },
      { nodeId: 'fleet-c', trustVersion: 2 },
    ]);
  });

  it('A-PKI-36 a node has at most one open session, so sessions are nodes', async () => {
    await addNode(used.db, 'two-sessions');
    const insert = () =>
      used.db.query(
        {
          text: `insert into node_sessions (id, node_id, gateway_id, epoch, role, cert_issuer, cert_serial) values ($1, 'two-sessions', 'g', 1, 'node', '', '')`,
        },
        [randomUUID()],
      );
    await insert();
    await assert.rejects(insert(), refused('CONFLICT', /the row exists already/, 'duplicate'));
  });
});

describe('presence and the clocks of hosts', () => {
  const used = useDatabase();

  it('ROT-025 is written and judged by the clock of the database, however far off those of the gateways are', async () => {
    const node = await enrol(used.db, 'clocks');
    const { sessionId } = await connect(used.db, node, { now: null, trustVersion: 1 });
    const seen = async (): Promise<number> =>
      (
        await used.db.query<{ ageMs: number }>({
          text: `select (extract(epoch from clock_timestamp() - last_seen_at) * 1000)::int as "ageMs" from node_presence where node_id = 'clocks'`,
        })
      )[0]!.ageMs;
    assert.ok((await seen()) < 60_000);
    for (const offMs of [-3_600_000, 3_600_000]) {
      const itsNow = Date.now() + offMs;
      await touchSessions(used.db, [{ sessionId, lastSeenAt: itsNow - 5_000 }], itsNow);
      assert.ok(Math.abs(await seen()) < 60_000, `a gateway ${offMs} ms off`);
    }
    assert.equal((await fleetFacts(used.db, { version: 2 })).behind, 1);
    assert.deepEqual(await connectedNodeVersions(used.db, {}), [{ nodeId: 'clocks', trustVersion: 1 }]);
  });

  it('H-02 a heartbeat is stamped by the database too', async () => {
    const fixed = { kind: 'worker-signing', host: 'h', pid: 1, version: '', bundleGeneration: 1, trustVersionSeen: null } as const;
    await recordHeartbeat(used.db, { ...fixed, id: 'w@h:1', bundleDigest: 'd' });
    const [row] = await listProcesses(used.db);
    const now = await databaseNow(used.db);
    assert.ok(row !== undefined && row.lastSeenAt <= now && now - row.lastSeenAt < 30_000);
  });
});
