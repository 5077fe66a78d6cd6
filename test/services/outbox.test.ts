import assert from 'node:assert/strict';
import { commandStates } from '../../domain/commands/states.ts';
import { minute, second } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { cancelCommand, enqueueCommands } from '../../services/command-queue.ts';
import {
  backOffCompletion,
  finishCompletions,
  outboxLeaseMs,
  readOpenWaits,
  registerWait,
  retryDelayMs,
  sweepLostCompletions,
  takeDueCompletions,
} from '../../services/outbox.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, connect, enrol, keyring, refused, t0, trustDomain } from './support.ts';

async function waitingCommands(db: Database, nodeId: string, count: number): Promise<string[]> {
  const commands = Array.from({ length: count }, () => command(nodeId));
  await enqueueCommands({ db, worker: await keyring(db), trustDomain, now: t0, commands });
  for (const { id } of commands) await registerWait(db, { commandId: id, workflowId: 'w', runId: 'r1', activityId: id, now: t0 });
  return commands.map(({ id }) => id);
}

describe('the outbox', () => {
  const used = useDatabase({ max: 20 });
  before(() => addNode(used.db, 'outbox'));
  const cancel = (id: string) => cancelCommand(used.db, { id, reason: 'test', now: t0 });

  it('gives every due row to one of many relays', async () => {
    const ids = await waitingCommands(used.db, 'outbox', 30);
    await Promise.all(ids.map(cancel));
    const taken = await Promise.all(Array.from({ length: 10 }, () => takeDueCompletions(used.db, { now: t0, limit: 5 })));
    const rest = await takeDueCompletions(used.db, { now: t0, limit: 100 });
    const all = [...taken.flat(), ...rest].map((row) => row.commandId);
    assert.deepEqual(all.sort(), ids.sort());
    assert.deepEqual(await takeDueCompletions(used.db, { now: t0 + outboxLeaseMs - 1, limit: 100 }), []);
    const again = await takeDueCompletions(used.db, { now: t0 + outboxLeaseMs, limit: 100 });
    assert.deepEqual([again.length, again[0]?.attempts], [30, 1]);
    await finishCompletions(used.db, ids);
    assert.deepEqual(await used.db.query({ text: 'select 1 from completion_outbox union all select 1 from command_waits' }), []);
  });

  it('backs off from a second to a minute', async () => {
    assert.deepEqual([0, 1, 2, 5, 6, 7, 400].map(retryDelayMs), [second, 2 * second, 4 * second, 32 * second, minute, minute, minute]);
    const [id] = (await waitingCommands(used.db, 'outbox', 1)) as [string];
    await cancel(id);
    const [row] = await takeDueCompletions(used.db, { now: t0, limit: 1 });
    await backOffCompletion(used.db, { commandId: id, attempts: row!.attempts, now: t0 });
    assert.deepEqual(await takeDueCompletions(used.db, { now: t0 + second - 1, limit: 9 }), []);
    assert.equal((await takeDueCompletions(used.db, { now: t0 + second, limit: 9 })).length, 1);
    await finishCompletions(used.db, [id]);
  });

  it('answers a wait for a finished command at once, and keeps the newest registration', async () => {
    const [id] = (await waitingCommands(used.db, 'outbox', 1)) as [string];
    await registerWait(used.db, { commandId: id, workflowId: 'w', runId: 'r2', activityId: id, now: t0 });
    await cancel(id);
    assert.equal((await takeDueCompletions(used.db, { now: t0, limit: 9 }))[0]?.runId, 'r2');
    const status = await registerWait(used.db, { commandId: id, workflowId: 'w', runId: 'r3', activityId: id, now: t0 });
    assert.equal(status.finished, true);
    await finishCompletions(used.db, [id]);
    await assert.rejects(
      registerWait(used.db, { commandId: 'none', workflowId: 'w', runId: 'r', activityId: 'a', now: t0 }),
      refused('NOT_FOUND', /no command is called none/),
    );
  });

  it('who registers while the end is on its way is told of the end, and does not wait for it', async () => {
    const waited = command('outbox');
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: [waited] });
    const wait = { commandId: waited.id, workflowId: 'w', runId: 'late', activityId: waited.id, now: t0 };
    let answered = false;
    let registering: Promise<{ finished: boolean }> | undefined;
    await used.db.transaction(async (tx) => {
      await tx.query({ text: `update node_commands set state = ${commandStates.done} where id = $1` }, [waited.id]);
      registering = registerWait(used.db, wait).finally(() => {
        answered = true;
      });
      const blocked = { text: `select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()` };
      await eventually('the registration to wait', async () => answered || (await tx.query(blocked)).length > 0);
    });
    assert.equal((await registering)?.finished, true);
    assert.deepEqual(await used.db.query({ text: `select 1 from command_waits where run_id = 'late'` }), []);
  });

  it('the sweep finds a completion that was lost, and nothing else', async () => {
    const [lost, open] = (await waitingCommands(used.db, 'outbox', 2)) as [string, string];
    assert.deepEqual(await sweepLostCompletions(used.db, { now: t0, limit: 9 }), []);
    await cancel(lost);
    assert.deepEqual(await sweepLostCompletions(used.db, { now: t0, limit: 9 }), []);
    await used.db.query({ text: 'delete from completion_outbox' });
    assert.deepEqual(await sweepLostCompletions(used.db, { now: t0, limit: 9 }), [lost]);
    assert.ok((await readOpenWaits(used.db, { now: t0, afterId: '', limit: 9 })).some((wait) => wait.commandId === open));
  });

  it('lists open waits in pages, and says whether their node is there', async () => {
    await used.db.query({ text: 'delete from command_waits' });
    await connect(used.db, await enrol(used.db, 'outbox-live'));
    const ids = [...(await waitingCommands(used.db, 'outbox-live', 2)), ...(await waitingCommands(used.db, 'outbox', 1))].sort();
    const first = await readOpenWaits(used.db, { now: t0, afterId: '', limit: 2 });
    const rest = await readOpenWaits(used.db, { now: t0, afterId: first.at(-1)!.commandId, limit: 2 });
    const all = [...first, ...rest];
    assert.deepEqual(
      all.map((wait) => wait.commandId),
      ids,
    );
    for (const wait of all) assert.equal(wait.connected, wait.nodeId === 'outbox-live');
    const later = await readOpenWaits(used.db, { now: t0 + 3 * minute, afterId: '', limit: 9 });
    assert.ok(later.every((wait) => !wait.connected && !wait.acked));
  });
});
