import assert from 'node:assert/strict';
import { type CommandProgressRow, findProgress, recordProgress } from '../../drizzle/queries/progress.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { keptMs, pruneFinished } from '../../services/housekeeping.ts';
import { getCommands } from '../../services/operator-reads.ts';
import { useDatabase } from '../harness/postgres.ts';
import { command, connect, enrol, keyring, t0, trustDomain } from '../services/support.ts';

describe('how far commands are, in the database', () => {
  const used = useDatabase();

  async function start(nodeId: string): Promise<{ id: string; say: (over?: Partial<CommandProgressRow>) => CommandProgressRow }> {
    const { epoch } = await connect(used.db, await enrol(used.db, nodeId));
    const sent = command(nodeId);
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: [sent] });
    const said = { nodeId, epoch, commandId: sent.id, done: 10, total: 100, note: 'writing' };
    return { id: sent.id, say: (over = {}) => ({ ...said, ...over }) };
  }
  const kept = async (id: string) => (await findProgress(used.db, [id])).get(id);

  it('FRM-004 keeps the last word, and where its count began', async () => {
    const { id, say } = await start('progress-last');
    assert.deepEqual(await recordProgress(used.db, [say()], t0), { fenced: [] });
    await recordProgress(used.db, [say({ done: 60, note: 'still' })], t0 + 5);
    const first = { commandId: id, total: 100, firstDone: 10, firstAt: t0 };
    assert.deepEqual(await kept(id), { ...first, done: 60, note: 'still', at: t0 + 5 });
    await recordProgress(used.db, [say({ done: 3, note: 'reading back' })], t0 + 9);
    assert.deepEqual(await kept(id), { ...first, done: 3, note: 'reading back', at: t0 + 9, firstDone: 3, firstAt: t0 + 9 });
  });

  it('FRM-004 an operator sees it beside the command', async () => {
    const { id, say } = await start('progress-shown');
    assert.equal((await getCommands(used.db, id, { limit: 1 }))[0]?.progress, undefined);
    await recordProgress(used.db, [say()], t0);
    const [shown] = await getCommands(used.db, id, { limit: 1 });
    assert.deepEqual(shown?.progress, { done: 10, total: 100, note: 'writing', at: t0, firstDone: 10, firstAt: t0 });
  });

  it('B52 takes nothing of another epoch, and an older one writes over no newer one', async () => {
    const { id, say } = await start('progress-fenced');
    await recordProgress(used.db, [say({ done: 50 })], t0);
    const { epoch } = say();
    assert.deepEqual(await recordProgress(used.db, [say({ epoch: epoch + 1 })], t0 + 1), { fenced: [id] });
    await used.db.query({ text: 'update command_progress set epoch = epoch + 1 where command_id = $1' }, [id]);
    assert.deepEqual(await recordProgress(used.db, [say({ done: 51 })], t0 + 1), { fenced: [] });
    assert.equal((await kept(id))?.done, 50);
  });

  it('keeps nothing of a command that is another node’s, unknown or over, and lets it go with its command', async () => {
    const [own, other] = [await start('progress-own'), await start('progress-other')];
    const rows = [own.say({ commandId: other.id }), own.say({ commandId: 'made-up/1' })];
    assert.deepEqual(await recordProgress(used.db, rows, t0), { fenced: [] });
    assert.deepEqual([await kept(other.id), await kept('made-up/1')], [undefined, undefined]);
    await recordProgress(used.db, [own.say()], t0);
    await used.db.query({ text: 'update node_commands set state = 2, finished_at = $2 where id = $1' }, [own.id, new Date(t0)]);
    await recordProgress(used.db, [own.say({ done: 99 })], t0 + 1);
    assert.equal((await kept(own.id))?.done, 10);
    await pruneFinished(used.db, { now: t0 + keptMs.commands + 1 });
    assert.equal(await kept(own.id), undefined);
  });
});
