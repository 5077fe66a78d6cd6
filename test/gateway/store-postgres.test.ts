import assert from 'node:assert/strict';
import { hour } from '../../domain/time.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { enqueueCommands } from '../../services/command-queue.ts';
import { writeNodeSpec } from '../../services/desired-state.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, connect, enrol, keyring, refused, sha256, t0, trustDomain } from '../services/support.ts';

describe('the session store over PostgreSQL', () => {
  const used = useDatabase();
  const store = () => createPostgresStore(used.db, () => t0);
  const enqueue = async (nodeId: string, id: string): Promise<void> => {
    const worker = await keyring(used.db);
    await enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands: [command(nodeId, { id, deadlineMs: t0 + hour })] });
  };

  it('B51, B52 reads nothing for an epoch that is not the newest, and says so', async () => {
    const node = await enrol(used.db, 'epochs');
    const [older, newer] = [await connect(used.db, node), await connect(used.db, node)];
    await enqueue('epochs', 'epochs/1');
    const cursor = (epoch: number) => [{ nodeId: 'epochs', epoch, afterSeq: 0 }];
    assert.deepEqual(await store().readOpenCommands(cursor(older.epoch), 10), { commands: [], fenced: ['epochs'] });
    const { commands, fenced } = await store().readOpenCommands(cursor(newer.epoch), 10);
    assert.deepEqual([commands.map(({ id }) => id), fenced], [['epochs/1'], []]);
  });

  it('writes one batch as one: acks, rejects and results stand or fall together', async () => {
    const node = await enrol(used.db, 'batches');
    const { epoch } = await connect(used.db, node);
    for (const id of ['batches/1', 'batches/2', 'batches/3']) await enqueue('batches', id);
    const { commands } = await store().readOpenCommands([{ nodeId: 'batches', epoch, afterSeq: 0 }], 10);
    const [one, two, three] = commands;
    assert.ok(one !== undefined && two !== undefined && three !== undefined);
    const said = { nodeId: 'batches', epoch };
    const result = { ...said, outcome: 1, payload: null, errorCode: '', errorMessage: '', startedAt: null, finishedAt: null };
    const batch = {
      acks: [{ ...said, commandId: one.id, seq: one.seq }],
      rejects: [{ ...said, commandId: two.id, reason: 'expired', seq: 0, detail: '' }],
      results: [{ ...result, commandId: three.id, bodySha256: sha256(three.body) }],
    };
    const broken = {
      ...batch,
      results: [...batch.results, { ...result, commandId: one.id, errorMessage: 'a\u0000b', bodySha256: sha256(one.body) }],
    };
    await assert.rejects(store().record(broken), refused('INVALID_INPUT', /cannot store/));
    const states = async (): Promise<number[]> =>
      (await used.db.query<{ state: number }>({ text: `select state from node_commands where node_id = 'batches' order by seq` })).map(
        ({ state }) => state,
      );
    assert.deepEqual(await states(), [0, 0, 0]);
    assert.deepEqual(await store().record(batch), { settled: [three.id], fenced: [], unknown: [] });
    assert.deepEqual(await states(), [1, 6, 2]);
  });

  it('FRM a reject without a usable id settles what stands at its position, and nothing of another node', async () => {
    const node = await enrol(used.db, 'nameless');
    await enrol(used.db, 'nameless-other');
    const { epoch } = await connect(used.db, node);
    for (const nodeId of ['nameless', 'nameless-other']) await enqueue(nodeId, `${nodeId}/1`);
    const reject = { nodeId: 'nameless', epoch, commandId: '', reason: 'malformed', detail: 'the body does not decode' };
    const batch = {
      acks: [],
      results: [],
      rejects: [
        { ...reject, seq: 9 },
        { ...reject, seq: 1 },
      ],
    };
    assert.deepEqual(await store().record(batch), { settled: [], fenced: [], unknown: [] });
    const rows = await used.db.query<{ id: string; state: number; reason: string | null }>({
      text: `select id, state, reject_reason as reason from node_commands where node_id like 'nameless%' order by id`,
    });
    assert.deepEqual(
      rows.map(({ id, state, reason }) => [id, state, reason]),
      [
        ['nameless-other/1', 0, null],
        ['nameless/1', 6, 'malformed: the body does not decode'],
      ],
    );
  });

  it('knows no desired state of a node without one, and refuses an unknown node', async () => {
    await addNode(used.db, 'plain');
    assert.equal(await store().findDesiredState('plain'), null);
    await assert.rejects(store().findDesiredState('nobody'), refused('NOT_FOUND', /node nobody is not known/, 'unknown-node'));
  });

  it('SSH-006 finds the signed state of the nodes that have a newer one than they were sent', async () => {
    const worker = await keyring(used.db);
    for (const id of ['newer', 'same', 'none']) await addNode(used.db, id);
    const write = (nodeId: string, seconds: number) =>
      writeNodeSpec({ db: used.db, worker, trustDomain, nodeId, spec: { daemon: { statusIntervalSeconds: seconds } }, now: t0 });
    await write('newer', 1);
    await write('newer', 2);
    await write('same', 1);
    const held = ['newer', 'same', 'none', 'nobody'].map((nodeId) => ({ nodeId, generation: nodeId === 'none' ? 0 : 1 }));
    const found = await store().findNewerStates(held);
    assert.deepEqual(
      [...found].map(([nodeId, { generation }]) => [nodeId, generation]),
      [['newer', 2]],
    );
    assert.deepEqual(found.get('newer'), await store().findDesiredState('newer'));
  });
});
