import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { day, hour, minute, second } from '../../domain/time.ts';
import { readCommands } from '../../drizzle/queries/commands.ts';
import { changeIdentity, lockNode } from '../../drizzle/queries/nodes.ts';
import { parseSignature, verifyIntent } from '../../pki/envelope/index.ts';
import { CommandBodySchema, InventoryRefreshSchema, NodeRebootSchema, site } from '../../proto/index.ts';
import {
  type CommandRequest,
  enqueueCommands,
  expireCommands,
  findCommand,
  getCommand,
  reconcileCommands,
} from '../../services/command-queue.ts';
import { registerWait, takeDueCompletions } from '../../services/outbox.ts';
import { revokeNode } from '../../services/revocation.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, keyring, rebootPayload, refused, t0, testBundle, trustDomain } from './support.ts';

describe('the command queue', () => {
  const used = useDatabase({ max: 20 });
  let worker: WorkerKeyProvider;
  before(async () => {
    worker = await keyring(used.db);
  });
  const enqueue = (commands: CommandRequest[], changes: { now?: number; poke?: (ids: readonly string[]) => void } = {}) =>
    enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands, ...changes });
  const stored = async (id: string) => (await readCommands(used.db, [id])).get(id)!;

  it('SIGN-001 SIGN-002 signs every command so that a daemon believes it', async () => {
    await addNode(used.db, 'queue-signed');
    const kinds = [command('queue-signed'), command('queue-signed', { kind: 'node.reboot', payload: rebootPayload('kernel') })];
    assert.deepEqual((await enqueue(kinds)).enqueued.length, 2);
    const root = (await testBundle()).commandSigning!;
    for (const { id, kind } of kinds) {
      const row = await stored(id);
      const verified = verifyIntent({
        purpose: 'command',
        body: row.body,
        signature: parseSignature(row.signature),
        roots: [root.certificate.der],
        now: t0,
        required: true,
      });
      assert.ok(verified !== null);
      const body = fromBinary(CommandBodySchema, row.body);
      assert.deepEqual(
        [body.commandId, body.nodeId, body.kind, body.trustDomain, body.generation, body.issuedAtMs, body.expiresAtMs],
        [id, 'queue-signed', kind, trustDomain, 1n, BigInt(t0), BigInt(t0 + hour)],
      );
      assert.equal(row.signerRoot, root.id);
    }
  });

  it('is idempotent by id: the same request again changes nothing, whatever the clock and the deadline', async () => {
    await addNode(used.db, 'queue-again');
    const request = command('queue-again');
    assert.deepEqual(await enqueue([request]), { enqueued: [request.id], existing: [], held: [] });
    const before = await stored(request.id);
    assert.deepEqual(await enqueue([{ ...request, deadlineMs: t0 + 2 * hour }], { now: t0 + minute }), {
      enqueued: [],
      existing: [request.id],
      held: [],
    });
    const next = command('queue-again');
    assert.deepEqual(await enqueue([request, next]), { enqueued: [next.id], existing: [request.id], held: [] });
    assert.deepEqual(await stored(request.id), before);
  });

  it('refuses an id that exists with another content', async () => {
    await addNode(used.db, 'queue-differs');
    await addNode(used.db, 'queue-differs-2');
    const request = command('queue-differs', { kind: 'node.reboot', payload: rebootPayload('first') });
    await enqueue([request]);
    const other = { ...request, payload: rebootPayload('second') };
    for (const again of [
      other,
      { ...request, nodeId: 'queue-differs-2' },
      { ...request, batchId: 'b1' },
      command('queue-differs', { id: request.id }),
    ]) {
      await assert.rejects(
        enqueue([again]),
        refused('CONFLICT', /exists with another content \(node\.reboot for queue-differs\)/, 'command-differs'),
      );
    }
  });

  it('MT2 signs with a command what was asked for before it, and how the machine was then', async () => {
    await addNode(used.db, 'queue-earlier');
    const seen = anyPack(site.SystemSightSchema, create(site.SystemSightSchema, { lastReset: 'before' }));
    const request = command('queue-earlier', { earlier: { commandId: 'run/power.1', seen } });
    await enqueue([request]);
    const { earlier } = fromBinary(CommandBodySchema, (await stored(request.id)).body);
    assert.equal(earlier?.commandId, 'run/power.1');
    assert.equal(earlier.seen === undefined ? '' : anyUnpack(earlier.seen, site.SystemSightSchema)?.lastReset, 'before');
    assert.deepEqual((await enqueue([request], { now: t0 + minute })).existing, [request.id]);
    const other = { ...request, earlier: { commandId: 'run/power.1', seen: null } };
    await assert.rejects(enqueue([other]), refused('CONFLICT', /exists with another content/, 'command-differs'));
  });

  it('refuses what no node could run, before anything is signed', async () => {
    await addNode(used.db, 'queue-node');
    await addNode(used.db, 'queue-site', 'site');
    const wrongType = toBinary(AnySchema, anyPack(NodeRebootSchema, create(NodeRebootSchema)));
    const torn = toBinary(
      AnySchema,
      create(AnySchema, { typeUrl: 'type.googleapis.com/bettercompute.agent.v1.InventoryRefresh', value: Uint8Array.of(0x0a, 9) }),
    );
    const elsewhere = toBinary(AnySchema, {
      ...anyPack(InventoryRefreshSchema, create(InventoryRefreshSchema)),
      typeUrl: 'example.org/bettercompute.agent.v1.InventoryRefresh',
    });
    const table: [Partial<CommandRequest>, 'INVALID_INPUT' | 'NOT_FOUND' | 'INVALID_STATE', RegExp, string][] = [
      [{ id: '' }, 'INVALID_INPUT', /the id is not 1 to 128 printable/, 'command-id'],
      [{ id: 'x'.repeat(129) }, 'INVALID_INPUT', /the id is not 1 to 128 printable/, 'command-id'],
      [{ id: 'a b' }, 'INVALID_INPUT', /the id is not 1 to 128 printable/, 'command-id'],
      [{ kind: 'disk.melt' }, 'INVALID_INPUT', /there is no command kind disk\.melt/, 'unknown-kind'],
      [{ kind: 'constructor' }, 'INVALID_INPUT', /there is no command kind constructor/, 'unknown-kind'],
      [{ deadlineMs: t0 }, 'INVALID_INPUT', /the deadline 2026-03-01T12:00:00Z is not in the future/, 'deadline-past'],
      [{ deadlineMs: 60_000 }, 'INVALID_INPUT', /the deadline 1970-01-01T00:01:00Z is not in the future/, 'deadline-past'],
      [{ deadlineMs: Number.NaN }, 'INVALID_INPUT', /the deadline NaN is not in the future/, 'deadline-past'],
      [{ deadlineMs: t0 + 32 * day }, 'INVALID_INPUT', /more than 31 days away/, 'deadline-far'],
      [{ notBeforeMs: t0 + hour }, 'INVALID_INPUT', /due only after its deadline/, 'not-before'],
      [{ payload: wrongType }, 'INVALID_INPUT', /the payload is not a bettercompute\.agent\.v1\.InventoryRefresh/, 'payload'],
      [{ payload: torn }, 'INVALID_INPUT', /the payload is not a/, 'payload'],
      [{ payload: elsewhere }, 'INVALID_INPUT', /the payload is not a/, 'payload'],
      [{ payload: Uint8Array.of(255) }, 'INVALID_INPUT', /the payload is not a/, 'payload'],
      [{ nodeId: 'nobody' }, 'NOT_FOUND', /no node is called nobody/, 'unknown-node'],
      [
        { nodeId: 'queue-site', kind: 'node.reboot', payload: rebootPayload() },
        'INVALID_INPUT',
        /node\.reboot is not for nodes of role site \(queue-site\)/,
        'wrong-role',
      ],
    ];
    const good = command('queue-node');
    for (const [changes, code, message, reason] of table) {
      await assert.rejects(enqueue([good, command('queue-node', changes)]), refused(code, message, reason));
    }
    await assert.rejects(enqueue([good, good]), refused('INVALID_INPUT', /stands twice/, 'duplicate-id'));
    assert.equal(await findCommand(used.db, good.id), undefined);
  });

  it('refuses a revoked node, known from an earlier call or not', async () => {
    await addNode(used.db, 'queue-revoked');
    await enqueue([command('queue-revoked')]);
    await revokeNode({ db: used.db, nodeId: 'queue-revoked', actor: 'olga', reason: 'lost', now: t0 });
    const check = refused('INVALID_STATE', /node queue-revoked is revoked: it gets no commands/, 'node-not-active');
    await assert.rejects(enqueue([command('queue-revoked')]), check);
    await assert.rejects(
      enqueueCommands({ db: { ...used.db }, worker, trustDomain, now: t0, commands: [command('queue-revoked')] }),
      check,
    );
  });

  it('signs for the generation that counts now, although it knew an older one', async () => {
    await addNode(used.db, 'queue-generation');
    await enqueue([command('queue-generation')]);
    await used.db.query(
      {
        text: `with n as (update nodes set identity_generation = 5 where id = $1) update node_queue set generation = 5 where node_id = $1`,
      },
      ['queue-generation'],
    );
    const request = command('queue-generation');
    assert.deepEqual((await enqueue([request, command('queue-generation')])).enqueued.length, 2);
    assert.equal(fromBinary(CommandBodySchema, (await stored(request.id)).body).generation, 5n);
  });

  it('a revocation between the look at the node and the append wins', async () => {
    await addNode(used.db, 'queue-overtaken');
    const overtaken: WorkerKeyProvider = {
      async current() {
        await revokeNode({ db: used.db, nodeId: 'queue-overtaken', actor: 'olga', reason: 'lost', now: t0 });
        return worker.current();
      },
    };
    for (const commands of [[command('queue-overtaken')], [command('queue-overtaken'), command('queue-overtaken')]]) {
      const late = enqueueCommands({ db: used.db, worker: overtaken, trustDomain, now: t0, commands });
      await assert.rejects(late, refused('INVALID_STATE', /node queue-overtaken is revoked/, 'node-not-active'));
    }
    assert.deepEqual(await used.db.query({ text: `select id from node_commands where node_id = 'queue-overtaken'` }), []);
  });

  it('an append that waited for a revocation to commit appends nothing', async () => {
    await addNode(used.db, 'queue-waits');
    await enqueue([command('queue-waits')]);
    let late: Promise<unknown> = Promise.resolve();
    await used.db.transaction(async (tx) => {
      const node = await lockNode(tx, 'queue-waits');
      await changeIdentity(tx, { node: node!, state: 'revoked', now: t0 });
      late = Promise.allSettled([enqueue([command('queue-waits')]), enqueue([command('queue-waits'), command('queue-waits')])]);
      for (let waiting = 0; waiting < 2; ) {
        const rows = await used.db.query({
          text: `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        });
        waiting = rows.length;
      }
    });
    for (const answer of (await late) as PromiseSettledResult<unknown>[]) {
      assert.ok(answer.status === 'rejected');
      refused('INVALID_STATE', /node queue-waits is revoked/, 'node-not-active')(answer.reason);
    }
    assert.equal((await used.db.query({ text: `select 1 from node_commands where node_id = 'queue-waits'` })).length, 1);
  });

  it('a revocation that runs at the same time leaves no unfinished command behind', async function () {
    this.timeout(30_000);
    for (let round = 0; round < 15; round++) {
      const id = `queue-race-${round}`;
      await addNode(used.db, id);
      const appends = Array.from({ length: 6 }, () => enqueue([command(id)]).catch(() => undefined));
      await Promise.all([...appends, revokeNode({ db: used.db, nodeId: id, actor: 'olga', reason: 'race', now: t0 })]);
      const open = await used.db.query({ text: 'select id from node_commands where node_id = $1 and state < 2' }, [id]);
      assert.deepEqual(open, [], id);
    }
  });

  it('wakes the gateways of the nodes that got something', async () => {
    for (const id of ['poke-a', 'poke-b']) await addNode(used.db, id);
    const poked: string[][] = [];
    const poke = (ids: readonly string[]) => void poked.push([...ids]);
    const [a, b] = [command('poke-a'), command('poke-b')];
    await enqueue([a], { poke });
    await enqueue([a, b, command('poke-b')], { poke });
    await enqueue([a], { poke });
    assert.deepEqual(poked, [['poke-a'], ['poke-b']]);
  });

  it('B50 expires what was not taken, and what was taken but never answered, each at its time', async () => {
    await used.db.query({ text: 'update node_commands set state = 5 where state < 2' });
    await addNode(used.db, 'expires');
    const [open, acked] = [command('expires'), command('expires')];
    await enqueue([open, acked]);
    await used.db.query({ text: 'update node_commands set state = 1 where id = $1' }, [acked.id]);
    await registerWait(used.db, { commandId: open.id, workflowId: 'w', runId: 'r', activityId: open.id, now: t0 });
    assert.deepEqual(await expireCommands(used.db, { now: t0 + hour + 30 * second }), []);
    assert.deepEqual(await expireCommands(used.db, { now: t0 + hour + 31 * second }), [open.id]);
    assert.deepEqual(
      (await takeDueCompletions(used.db, { now: t0 + 2 * hour, limit: 9 })).map((row) => row.commandId),
      [open.id],
    );
    assert.deepEqual(await expireCommands(used.db, { now: t0 + hour + 90 * second }), []);
    assert.deepEqual(await expireCommands(used.db, { now: t0 + hour + 91 * second }), [acked.id]);
    assert.deepEqual(
      [(await getCommand(used.db, open.id)).reason, (await getCommand(used.db, acked.id)).reason],
      ['not taken before its deadline', 'no result in time'],
    );
    await assert.rejects(getCommand(used.db, 'none'), refused('NOT_FOUND', /no command is called none/, 'unknown-command'));
  });

  it('a scheduled command enters the log when it is due', async () => {
    await addNode(used.db, 'scheduled');
    const request = command('scheduled', { notBeforeMs: t0 + minute });
    await enqueue([request]);
    assert.ok((await stored(request.id)).seq < 0);
    const poked: string[] = [];
    const poke = (ids: readonly string[]) => void poked.push(...ids);
    assert.deepEqual((await reconcileCommands(used.db, { now: t0 + minute - 1, poke })).released, []);
    assert.deepEqual((await reconcileCommands(used.db, { now: t0 + minute, poke })).released, ['scheduled']);
    assert.deepEqual(poked, ['scheduled']);
    assert.ok((await stored(request.id)).seq > 0);
  });
});
