import assert from 'node:assert/strict';
import { hour } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { appendCommands, type NewCommand, releaseDueCommands } from '../../drizzle/queries/commands.ts';
import { readOpenCommands } from '../../drizzle/queries/dispatch.ts';
import { readAllRevoked, readRevocationsAfter } from '../../drizzle/queries/revocations.ts';
import { revokeCertificates, revokeNode } from '../../services/revocation.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, enrol, sha256, t0 } from '../services/support.ts';

let ids = 0;
function row(nodeId: string, changes: Partial<NewCommand> = {}): NewCommand {
  ids += 1;
  const body = Buffer.from(`body ${ids}`);
  return {
    id: `log/${ids}`,
    nodeId,
    generation: 1,
    kind: 'inventory.refresh',
    lane: 'control',
    body,
    bodySha256: sha256(body),
    signature: Buffer.from('signature'),
    signerRoot: 'aa',
    signerNotAfter: t0 + hour,
    batchId: null,
    requestedBy: 'test',
    notBefore: -Infinity,
    deadline: t0 + hour,
    createdAt: t0,
    ...changes,
  };
}

const logOf = async (db: Database, nodeId: string): Promise<[number, string][]> =>
  (
    await db.query<{ seq: number; id: string }>({ text: 'select seq, id from node_commands where node_id = $1 order by seq' }, [nodeId])
  ).map(({ seq, id }) => [seq, id]);

/** A promise and its resolver. */
function gate(): { opened: Promise<void>; open: () => void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

describe("a node's log", () => {
  const used = useDatabase({ max: 20 });

  it('gives one node consecutive positions, alone and in batches', async () => {
    await addNode(used.db, 'log-a');
    await addNode(used.db, 'log-b');
    const first = row('log-a');
    const batch = [row('log-a'), row('log-b'), row('log-a'), row('log-a'), row('log-b')];
    await appendCommands(used.db, [first]);
    assert.equal((await appendCommands(used.db, batch)).size, 5);
    assert.deepEqual(await logOf(used.db, 'log-a'), [
      [1, first.id],
      [2, batch[0]!.id],
      [3, batch[2]!.id],
      [4, batch[3]!.id],
    ]);
    assert.deepEqual(await logOf(used.db, 'log-b'), [
      [1, batch[1]!.id],
      [2, batch[4]!.id],
    ]);
  });

  it('skips ids that exist, one by one and in a batch', async () => {
    await addNode(used.db, 'log-again');
    const command = row('log-again');
    assert.equal((await appendCommands(used.db, [command])).size, 1);
    assert.equal((await appendCommands(used.db, [command])).size, 0);
    const next = row('log-again');
    assert.deepEqual([...(await appendCommands(used.db, [command, next]))], [next.id]);
    assert.deepEqual(await logOf(used.db, 'log-again'), [
      [1, command.id],
      [2, next.id],
    ]);
  });

  it('takes no command of another identity generation, and none for a node without a log', async () => {
    await addNode(used.db, 'log-generation');
    const table = [row('log-generation', { generation: 2 }), row('log-nobody')];
    for (const command of table) assert.equal((await appendCommands(used.db, [command])).size, 0);
    assert.equal((await appendCommands(used.db, table)).size, 0);
    assert.deepEqual(await logOf(used.db, 'log-generation'), []);
  });

  it('B69 the second transaction on one node waits for the first, so no position appears behind a cursor', async () => {
    await addNode(used.db, 'log-order');
    const held = gate();
    const appended = gate();
    const early = row('log-order');
    const late = row('log-order');
    const first = used.db.transaction(async (tx) => {
      await appendCommands(tx, [early]);
      appended.open();
      await held.opened;
    });
    await appended.opened;
    let secondDone = false;
    const appendLate = async (): Promise<void> => {
      await used.db.transaction((tx) => appendCommands(tx, [late]));
      secondDone = true;
    };
    const second = appendLate();
    // The second waits for the row lock: the server says so.
    for (;;) {
      const waiting = await used.db.query({
        text: `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      });
      if (waiting.length > 0) break;
    }
    assert.equal(secondDone, false);
    assert.deepEqual(await readOpenCommands(used.db, [{ nodeId: 'log-order', afterSeq: 0 }], 10), []);
    held.open();
    await Promise.all([first, second]);
    assert.deepEqual(await logOf(used.db, 'log-order'), [
      [1, early.id],
      [2, late.id],
    ]);
  });

  it('never deadlocks nor loses a position when many batches over the same nodes meet', async function () {
    this.timeout(30_000);
    const nodes = Array.from({ length: 12 }, (_, index) => `log-crowd-${index}`);
    for (const node of nodes) await addNode(used.db, node);
    const orders = [nodes, nodes.toReversed(), [...nodes.slice(6), ...nodes.slice(0, 6)]];
    const batches = Array.from({ length: 60 }, (_, index) => (orders[index % 3] as string[]).flatMap((node) => [row(node), row(node)]));
    const appended = await Promise.all(batches.map((batch) => appendCommands(used.db, batch)));
    assert.equal(
      appended.reduce((sum, set) => sum + set.size, 0),
      60 * 24,
    );
    for (const node of nodes) {
      const log = await logOf(used.db, node);
      assert.deepEqual(
        log.map(([seq]) => seq),
        Array.from({ length: 120 }, (_, index) => index + 1),
        node,
      );
    }
  });

  it('appends one command once when 20 callers bring the same id', async function () {
    this.timeout(20_000);
    await addNode(used.db, 'log-same');
    const command = row('log-same');
    const appended = await Promise.all(Array.from({ length: 20 }, () => appendCommands(used.db, [command])));
    assert.equal(appended.filter((set) => set.size === 1).length, 1);
    assert.equal((await logOf(used.db, 'log-same')).length, 1);
  });

  it('reads behind each cursor, in order, with a limit per node, and writes nothing', async () => {
    for (const id of ['read-a', 'read-b']) await addNode(used.db, id);
    const batch = [1, 2, 3].flatMap(() => [row('read-a'), row('read-b')]);
    await appendCommands(used.db, batch);
    const read = await readOpenCommands(
      used.db,
      [
        { nodeId: 'read-a', afterSeq: 1 },
        { nodeId: 'read-b', afterSeq: 0 },
      ],
      2,
    );
    assert.deepEqual(
      read.map((c) => [c.nodeId, c.seq]),
      [
        ['read-a', 2],
        ['read-a', 3],
        ['read-b', 1],
        ['read-b', 2],
      ],
    );
    assert.deepEqual(Buffer.from(read[0]!.body), Buffer.from(batch[2]!.body));
  });

  it('a command that is not due has no place yet, and gets the next one when it is', async () => {
    await addNode(used.db, 'log-due');
    const later = row('log-due', { notBefore: t0 + 1_000 });
    const latest = row('log-due', { notBefore: t0 + 2_000 });
    const now = row('log-due');
    await appendCommands(used.db, [later]);
    await appendCommands(used.db, [latest, now]);
    const read = async () => (await readOpenCommands(used.db, [{ nodeId: 'log-due', afterSeq: 0 }], 10)).map((c) => c.id);
    assert.deepEqual(await read(), [now.id]);
    assert.deepEqual(await releaseDueCommands(used.db, { now: t0 + 999, limit: 10 }), []);
    assert.deepEqual(await releaseDueCommands(used.db, { now: t0 + 1_000, limit: 10 }), ['log-due']);
    assert.deepEqual(await read(), [now.id, later.id]);
    assert.deepEqual(await releaseDueCommands(used.db, { now: t0 + 5_000, limit: 10 }), ['log-due']);
    assert.deepEqual(await read(), [now.id, later.id, latest.id]);
    assert.deepEqual(await releaseDueCommands(used.db, { now: t0 + 5_000, limit: 10 }), []);
  });
});

describe('the revocation feed', () => {
  const used = useDatabase();
  const revoke = (nodeId: string, now = t0) => revokeNode({ db: used.db, nodeId, actor: 'olga', reason: 'lost', now });

  it('REV-009 H-16 B69 numbers appear in the order of commits, however long a transaction takes and whatever time its row carries', async () => {
    const [slow, quick] = [await enrol(used.db, 'feed-slow'), await enrol(used.db, 'feed-quick')];
    const held = gate();
    const counted = gate();
    const first = used.db.transaction(async (tx) => {
      await revokeCertificates(tx, { nodeId: slow.id, reason: 'slow', now: t0 });
      counted.open();
      await held.opened;
    });
    await counted.opened;
    const second = revoke(quick.id);
    for (;;) {
      const waiting = await used.db.query({
        text: `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      });
      if (waiting.length > 0) break;
    }
    const { seq } = await readAllRevoked(used.db, t0);
    assert.equal(seq, 0, 'nothing is visible before the first commits');
    held.open();
    await Promise.all([first, second]);
    assert.deepEqual(
      (await readRevocationsAfter(used.db, seq)).map((entry) => [entry.seq, entry.nodeId]),
      [
        [1, 'feed-slow'],
        [2, 'feed-quick'],
      ],
    );
    assert.deepEqual(
      (await readRevocationsAfter(used.db, 1)).map((entry) => entry.nodeId),
      ['feed-quick'],
    );
    const late = await enrol(used.db, 'feed-late');
    await revoke(late.id, t0 - 50_000);
    assert.deepEqual(
      (await readRevocationsAfter(used.db, 2)).map((entry) => [entry.nodeId, entry.revokedAt]),
      [['feed-late', t0 - 50_000]],
      'older than the newest seen, committed after it, and read',
    );
  });

  it('REV-007 loads what is revoked and unexpired, and the number to go on from', async () => {
    const all = await readAllRevoked(used.db, t0);
    assert.deepEqual([all.seq, all.revocations.length], [3, 3]);
    assert.equal(all.revocations[0]?.serial.length, 34);
    assert.equal((await readAllRevoked(used.db, t0 + 48 * hour)).revocations.length, 0, 'expired ones are of no interest');
  });

  it('C27 is keyed by issuer and serial', async () => {
    const [row] = await used.db.query<{ columns: string[] }>({
      text: `select array_agg(a.attname::text order by a.attnum) as columns from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
             where i.indrelid = 'node_certs'::regclass and i.indisprimary`,
    });
    assert.deepEqual(row?.columns, ['issuer', 'serial']);
  });
});
