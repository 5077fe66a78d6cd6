import assert from 'node:assert/strict';
import { commandStateName } from '../../domain/commands/states.ts';
import { readCommands, readResignCandidates, replaceSignatures } from '../../drizzle/queries/commands.ts';
import {
  type CommandResultRow,
  readOpenCommands,
  recordAcks,
  recordBatch,
  recordRejects,
  recordResults,
} from '../../drizzle/queries/dispatch.ts';
import { type CommandRequest, cancelCommand, enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { registerWait, takeDueCompletions } from '../../services/outbox.ts';
import { useDatabase } from '../harness/postgres.ts';
import { command, connect, enrol, keyring, sha256, t0, trustDomain } from '../services/support.ts';

describe('the way back from a node', () => {
  const used = useDatabase({ max: 20 });

  async function start(id: string, count = 1): Promise<{ nodeId: string; epoch: number; sent: CommandRequest[] }> {
    const node = await enrol(used.db, id);
    const { epoch } = await connect(used.db, node);
    const sent = Array.from({ length: count }, () => command(id));
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: sent });
    return { nodeId: id, epoch, sent };
  }

  async function resultOf(
    session: { nodeId: string; epoch: number },
    commandId: string,
    changes: Partial<CommandResultRow> = {},
  ): Promise<CommandResultRow> {
    const { nodeId, epoch } = session;
    const stored = (await readCommands(used.db, [commandId])).get(commandId);
    return {
      nodeId,
      epoch,
      commandId,
      outcome: 1,
      payload: Buffer.from('answer'),
      errorCode: '',
      errorMessage: '',
      startedAt: t0 + 1,
      finishedAt: t0 + 2,
      bodySha256: stored?.bodySha256 ?? Buffer.alloc(32),
      ...changes,
    };
  }

  const stateOf = async (id: string) => commandStateName((await readCommands(used.db, [id])).get(id)!.state);
  const position = async (id: string) => (await readCommands(used.db, [id])).get(id)!.seq;

  it('an ack moves an open command, raises the acknowledged position and never lowers it', async () => {
    const { nodeId, epoch, sent } = await start('acks', 3);
    const [a, b, c] = sent.map((one) => one.id) as [string, string, string];
    const at = async (commandId: string) => ({ nodeId, epoch, commandId, seq: await position(commandId) });
    assert.deepEqual(await recordAcks(used.db, [await at(c), await at(a)], t0), { fenced: [] });
    assert.deepEqual(await recordAcks(used.db, [await at(a)], t0), { fenced: [] });
    const [queue] = await used.db.query<{ acked: number }>({ text: 'select acked_seq as acked from node_queue where node_id = $1' }, [
      nodeId,
    ]);
    assert.equal(queue?.acked, 3);
    assert.deepEqual(await Promise.all([a, b, c].map(stateOf)), ['acked', 'open', 'acked']);
  });

  it('a new session reads again what is open or acknowledged and unfinished', async () => {
    const { nodeId, epoch, sent } = await start('resumes', 3);
    const [a, b, c] = sent.map((one) => one.id) as [string, string, string];
    await recordAcks(
      used.db,
      [
        { nodeId, epoch, commandId: a, seq: 1 },
        { nodeId, epoch, commandId: b, seq: 2 },
      ],
      t0,
    );
    await recordResults(used.db, [await resultOf({ nodeId, epoch }, a)], t0);
    assert.deepEqual(
      (await readOpenCommands(used.db, [{ nodeId, afterSeq: 0 }], 10)).map((one) => one.id),
      [b, c],
    );
  });

  it('B52 fences acks, rejects and results of a session that was replaced', async () => {
    const { nodeId, epoch, sent } = await start('fenced', 1);
    const id = sent[0]!.id;
    await used.db.query({ text: 'update node_queue set epoch = epoch + 1 where node_id = $1' }, [nodeId]);
    assert.deepEqual(await recordAcks(used.db, [{ nodeId, epoch, commandId: id, seq: 1 }], t0), { fenced: [id] });
    assert.deepEqual(await recordRejects(used.db, [{ nodeId, epoch, commandId: id, reason: 'expired', seq: 0, detail: '' }], t0), {
      stored: [],
      fenced: [id],
      unknown: [],
    });
    assert.deepEqual(await recordResults(used.db, [await resultOf({ nodeId, epoch }, id)], t0), { stored: [], fenced: [id], unknown: [] });
    assert.equal(await stateOf(id), 'open');
    assert.equal((await findCommand(used.db, id))?.result, null);
  });

  it('B52 a new epoch that is not committed yet holds the old session back until it is', async () => {
    const { nodeId, epoch, sent } = await start('fenced-late', 1);
    const id = sent[0]!.id;
    let recorded: ReturnType<typeof recordAcks> | undefined;
    await used.db.transaction(async (tx) => {
      await tx.query({ text: 'update node_queue set epoch = epoch + 1 where node_id = $1' }, [nodeId]);
      recorded = recordAcks(used.db, [{ nodeId, epoch, commandId: id, seq: 1 }], t0);
      for (;;) {
        const waiting = await used.db.query({
          text: `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        });
        if (waiting.length > 0) break;
      }
    });
    assert.deepEqual(await recorded, { fenced: [id] });
    assert.equal(await stateOf(id), 'open');
  });

  it('the first result wins; a repeated one is acknowledged and changes nothing', async () => {
    const { nodeId, epoch, sent } = await start('first-wins', 1);
    const id = sent[0]!.id;
    const first = await resultOf({ nodeId, epoch }, id);
    assert.deepEqual(await recordResults(used.db, [first], t0), { stored: [id], fenced: [], unknown: [] });
    assert.deepEqual(await recordResults(used.db, [{ ...first, outcome: 2, errorCode: 'E' }], t0 + 9), {
      stored: [id],
      fenced: [],
      unknown: [],
    });
    const status = await findCommand(used.db, id);
    assert.deepEqual([status?.state, status?.result?.outcome, status?.result?.errorCode, status?.finishedAt], ['done', 1, '', t0]);
  });

  it('each outcome is a state', async () => {
    const { nodeId, epoch, sent } = await start('outcomes', 4);
    const rows = await Promise.all(sent.map(async ({ id }, index) => resultOf({ nodeId, epoch }, id, { outcome: index + 1 })));
    await recordResults(used.db, rows, t0);
    assert.deepEqual(await Promise.all(sent.map(({ id }) => stateOf(id))), ['done', 'failed', 'interrupted', 'cancelled']);
  });

  it('a result over another body, of an unknown command or of another node is not stored', async () => {
    const { nodeId, epoch, sent } = await start('mismatch', 1);
    const other = await start('mismatch-other', 1);
    const id = sent[0]!.id;
    const table = [
      await resultOf({ nodeId, epoch }, id, { bodySha256: sha256(Buffer.from('another body')) }),
      await resultOf({ nodeId, epoch }, 'no/such/command'),
      await resultOf({ nodeId, epoch }, other.sent[0]!.id),
    ];
    const { stored, fenced, unknown } = await recordResults(used.db, table, t0);
    assert.deepEqual([stored, fenced, [...unknown].sort()], [[], [], table.map((row) => row.commandId).sort()]);
    assert.equal(await stateOf(id), 'open');
    assert.equal(await stateOf(other.sent[0]!.id), 'open');
  });

  it('a late result of a cancelled command is kept as evidence; the state stays', async () => {
    const { nodeId, epoch, sent } = await start('late', 1);
    const id = sent[0]!.id;
    assert.equal(await cancelCommand(used.db, { id, reason: 'operator', now: t0 }), true);
    assert.equal(await cancelCommand(used.db, { id, reason: 'again', now: t0 }), false);
    assert.deepEqual((await recordResults(used.db, [await resultOf({ nodeId, epoch }, id)], t0)).stored, [id]);
    const status = await findCommand(used.db, id);
    assert.deepEqual([status?.state, status?.reason, status?.result?.outcome], ['cancelled', 'operator', 1]);
  });

  it('a reject ends a command with its reason, once', async () => {
    const { nodeId, epoch, sent } = await start('rejects', 1);
    const id = sent[0]!.id;
    const reject = { nodeId, epoch, commandId: id, reason: 'unknown-root', seq: 0, detail: 'root 12ab is not held' };
    assert.deepEqual((await recordRejects(used.db, [reject], t0)).stored, [id]);
    assert.deepEqual((await recordRejects(used.db, [{ ...reject, reason: 'expired' }], t0)).stored, [id]);
    const status = await findCommand(used.db, id);
    assert.deepEqual([status?.state, status?.reason], ['rejected', 'unknown-root: root 12ab is not held']);
  });

  it('one batch of many sessions takes what counts and names the rest', async () => {
    const good = await start('batch-good', 2);
    const stale = await start('batch-stale', 1);
    await used.db.query({ text: 'update node_queue set epoch = epoch + 1 where node_id = $1' }, [stale.nodeId]);
    const rows = [
      await resultOf(good, good.sent[0]!.id),
      await resultOf(good, good.sent[0]!.id, { outcome: 2 }),
      await resultOf(stale, stale.sent[0]!.id),
      await resultOf(good, 'nothing'),
    ];
    assert.deepEqual(await recordResults(used.db, rows, t0), {
      stored: [good.sent[0]!.id],
      fenced: [stale.sent[0]!.id],
      unknown: ['nothing'],
    });
  });

  it('never deadlocks when batches of many sessions meet enqueues and signing again', async function () {
    this.timeout(60_000);
    const scenes: Awaited<ReturnType<typeof start>>[] = [];
    for (let index = 0; index < 8; index++) scenes.push(await start(`crowd-${index}`, 24));
    const worker = await keyring(used.db);
    const nodes = scenes.map((scene) => scene.nodeId);
    const batches = await Promise.all(
      Array.from({ length: 24 }, async (_, turn) => {
        const order = turn % 2 === 0 ? scenes : scenes.toReversed();
        const results = order.slice(0, 4).map((scene) => resultOf(scene, scene.sent[turn]!.id));
        const acks = order.slice(4).map((scene) => ({ ...scene, commandId: scene.sent[(turn + 1) % 24]!.id, seq: 1 }));
        return { acks, rejects: [], results: await Promise.all(results) };
      }),
    );
    const under = (await worker.current()).rootId;
    const enqueue = (order: string[]) =>
      enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands: order.map((id) => command(id)) });
    const resign = async () => {
      const rows = await readResignCandidates(used.db, {
        afterId: '',
        underRoot: under,
        expiringBefore: null,
        underUnpublished: false,
        limit: 500,
      });
      const shuffled = rows.toReversed().map(({ id }) => ({ id, signature: Buffer.from('s'), signerRoot: under, signerNotAfter: t0 }));
      await replaceSignatures(used.db, shuffled);
    };
    // What was said of one sort, alone in its batch, locks nothing beforehand.
    const apart = batches.flatMap(({ acks, results }, turn) => {
      const alone = { acks: [], rejects: [], results: [] };
      return turn % 3 === 0
        ? [{ acks, rejects: [], results }]
        : [
            { ...alone, acks: acks.toReversed() },
            { ...alone, results: results.toReversed() },
          ];
    });
    const work = apart.flatMap((batch, turn) => [
      recordBatch(used.db, batch, t0),
      enqueue(turn % 2 === 0 ? nodes.toReversed() : nodes),
      ...(turn % 4 === 0 ? [resign()] : []),
    ]);
    await Promise.all(work);
    const [row] = await used.db.query<{ results: number }>({
      text: `select count(*) as results from node_results where node_id like 'crowd-%'`,
    });
    assert.equal(row?.results, 96);
  });

  it('a result queues the completion of whoever waits, in the same transaction', async () => {
    const { nodeId, epoch, sent } = await start('completes', 2);
    const [waited, unwaited] = sent.map((one) => one.id) as [string, string];
    const wait = { commandId: waited, workflowId: 'command/1', runId: 'run', activityId: waited };
    assert.equal((await registerWait(used.db, { ...wait, now: t0 })).finished, false);
    await recordResults(used.db, [await resultOf({ nodeId, epoch }, waited), await resultOf({ nodeId, epoch }, unwaited)], t0);
    assert.deepEqual(await takeDueCompletions(used.db, { now: t0, limit: 10 }), [{ ...wait, attempts: 0 }]);
  });

  it('never loses a completion when the wait and the result meet', async function () {
    this.timeout(30_000);
    const { nodeId, epoch, sent } = await start('meets', 60);
    const rows = await Promise.all(sent.map(({ id }) => resultOf({ nodeId, epoch }, id)));
    const answers = await Promise.all(
      sent.flatMap(({ id }, index) => [
        registerWait(used.db, { commandId: id, workflowId: 'w', runId: 'r', activityId: id, now: t0 }).then((status) =>
          status.finished ? id : null,
        ),
        recordResults(used.db, [rows[index]!], t0).then(() => null),
      ]),
    );
    const answered = answers.filter((id) => id !== null);
    const queued = (await takeDueCompletions(used.db, { now: t0, limit: 1_000 })).map((row) => row.commandId);
    assert.deepEqual([...answered, ...queued].sort(), sent.map(({ id }) => id).sort());
  });
});
