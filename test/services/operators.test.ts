import assert from 'node:assert/strict';
import { judgeDrop, judgeProcesses, productionTimes } from '../../domain/rotation/gates.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { keptMs, pruneFinished } from '../../services/housekeeping.ts';
import { listProcesses, recordHeartbeat, removeProcess } from '../../services/processes.ts';
import { listWaitingCommands } from '../../services/stuck.ts';
import { lastWorkerNotAfter } from '../../services/worker-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, connect, enrol, keyring, t0, testBundle, trustDomain } from './support.ts';

describe('what operators ask', () => {
  const used = useDatabase({ max: 10 });
  before(async () => {
    for (const id of ['ops-c', 'ops-a', 'ops-b']) await enrol(used.db, id);
    await addNode(used.db, 'ops-site', 'site');
  });

  it('names what waits: age, node and its session', async () => {
    await connect(used.db, await enrol(used.db, 'ops-live'));
    const worker = await keyring(used.db);
    const commands = [command('ops-live'), command('ops-a'), command('ops-a', { notBeforeMs: t0 + 30 * minute })];
    await enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands });
    await used.db.query({ text: 'update node_commands set state = 1 where id = $1' }, [commands[0]!.id]);
    const ask = (now: number, olderThanMs: number) => listWaitingCommands(used.db, { now, olderThanMs, limit: 10 });
    assert.deepEqual(await ask(t0 + minute, minute), []);
    const waiting = await ask(t0 + minute + 1, minute);
    assert.deepEqual(
      waiting
        .map(({ nodeId, state, ageMs, overdue, session, gatewayId }) => ({ nodeId, state, ageMs, overdue, session, gatewayId }))
        .sort((a, b) => b.nodeId.localeCompare(a.nodeId)),
      [
        { nodeId: 'ops-live', state: 'acked', ageMs: minute + 1, overdue: false, session: 'connected', gatewayId: 'gw-1' },
        { nodeId: 'ops-a', state: 'open', ageMs: minute + 1, overdue: false, session: 'none', gatewayId: null },
      ],
    );
    const later = await ask(t0 + 2 * hour, 0);
    assert.ok(later.every((row) => row.overdue));
    assert.equal(later.find((row) => row.nodeId === 'ops-live')?.session, 'silent');
  });

  it('H-02 knows which bundle each live process runs', async () => {
    const process = { host: 'h', pid: 1, version: '0.1.0', bundleDigest: 'd1', bundleGeneration: 1, trustVersionSeen: null };
    await recordHeartbeat(used.db, { ...process, id: 'api@h:1', kind: 'api' }, t0);
    await recordHeartbeat(
      used.db,
      { ...process, id: 'gw@h:2', kind: 'gateway', bundleDigest: null, bundleGeneration: null, trustVersionSeen: 1 },
      t0,
    );
    const ask = async (now: number) => judgeProcesses(await listProcesses(used.db), { bundleDigest: 'd2', publishedVersion: 2, now });
    const behind = await ask(t0);
    assert.equal(behind.kind === 'closed' && behind.message, '2 of 2 process(es) do not run this bundle yet (api api@h:1, gateway gw@h:2)');
    await recordHeartbeat(used.db, { ...process, id: 'api@h:1', kind: 'api', bundleDigest: 'd2', bundleGeneration: 2 }, t0 + second);
    await recordHeartbeat(
      used.db,
      { ...process, id: 'gw@h:2', kind: 'gateway', bundleDigest: null, bundleGeneration: null, trustVersionSeen: 2 },
      t0 + second,
    );
    assert.deepEqual(await ask(t0 + second), { kind: 'open' });
    assert.equal((await listProcesses(used.db)).find((row) => row.id === 'api@h:1')?.startedAt, t0);
    assert.equal((await ask(t0 + minute)).kind, 'closed', 'dead processes open nothing');
    await removeProcess(used.db, 'gw@h:2');
    assert.deepEqual(
      (await listProcesses(used.db)).map((row) => row.id),
      ['api@h:1'],
    );
  });

  it('C10 H-03 a worker key certified after the switch moves the drop', async () => {
    const rootId = (await testBundle()).commandSigning!.id;
    const drop = async (now: number) =>
      judgeDrop({ switchedAt: t0, lastWorkerNotAfter: await lastWorkerNotAfter(used.db, rootId), now }, productionTimes);
    const early = await drop(t0 + day + 119 * second);
    assert.equal(early.kind === 'closed' && early.message, 'the old root can be dropped from 2026-03-02T12:02:00Z (in 1 s)');
    assert.deepEqual(await drop(t0 + day + 120 * second), { kind: 'open' });
    await used.db.query(
      { text: `insert into worker_certs (serial, root_id, process_id, not_before, not_after) values ('late', $1, 'p2', $2, $3)` },
      [rootId, new Date(t0 + 3 * hour), new Date(t0 + 27 * hour)],
    );
    const late = await drop(t0 + day);
    assert.equal(late.kind === 'closed' && late.message, 'the old root can be dropped from 2026-03-02T15:02:00Z (in 3 h 2 min)');
  });

  it('housekeeping takes what is finished and old, and nothing that waits', async () => {
    const worker = await keyring(used.db);
    const [old, open] = [command('ops-b'), command('ops-b')];
    await enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands: [old, open] });
    await used.db.query({ text: `update node_commands set state = 2, finished_at = $2 where id = $1` }, [old.id, new Date(t0)]);
    await used.db.query({ text: `insert into node_results (command_id, node_id, outcome, epoch) values ($1, 'ops-b', 1, 1)` }, [old.id]);
    const first = await pruneFinished(used.db, { now: t0 + keptMs.commands });
    assert.deepEqual([first.commands, first.processes], [0, 1]);
    const pruned = await pruneFinished(used.db, { now: t0 + keptMs.commands + 1 });
    assert.deepEqual([pruned.commands, pruned.processes], [1, 0]);
    assert.deepEqual((await used.db.query({ text: 'select 1 from node_results where command_id = $1' }, [old.id])).length, 0);
    assert.equal((await used.db.query({ text: 'select 1 from node_commands where id = $1' }, [open.id])).length, 1);
    assert.ok((await used.db.query({ text: 'select 1 from worker_certs' })).length > 0);
  });
});
