import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import { commandStates } from '../../domain/commands/states.ts';
import { day, hour } from '../../domain/time.ts';
import { readCommands } from '../../drizzle/queries/commands.ts';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { addCommandRoot, createBundle, nextGeneration, type PkiBundle, switchCommandRoot } from '../../pki/bundle/index.ts';
import {
  createWorkerKey,
  desiredStateFromStored,
  parseSignature,
  signCommand,
  verifyDesiredState,
  verifyIntent,
} from '../../pki/envelope/index.ts';
import { createSerial } from '../../pki/x509/index.ts';
import { SignatureSchema } from '../../proto/index.ts';
import { cancelCommand, countSignedUnder, enqueueCommands, resignCommands } from '../../services/command-queue.ts';
import { writeNodeSpec } from '../../services/desired-state.ts';
import { registerWait, takeDueCompletions } from '../../services/outbox.ts';
import type { ResignOptions } from '../../services/resign.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, keyring, refused, t0, testBundle, trustDomain } from './support.ts';

describe('desired state', () => {
  const used = useDatabase();
  let worker: WorkerKeyProvider;
  before(async () => {
    worker = await keyring(used.db);
    await addNode(used.db, 'spec-node');
  });
  const write = (spec: Record<string, object>) =>
    writeNodeSpec({ db: used.db, worker, trustDomain, nodeId: 'spec-node', spec: spec as never, now: t0 });

  it('SPEC-002 SPEC-005 SPEC-006 writes generation, body and signature together, and nothing when nothing changed', async () => {
    assert.equal(await write({ daemon: { statusIntervalSeconds: 30 } }), 1);
    const stored = (await findStoredSpec(used.db, 'spec-node'))!;
    assert.equal(stored.generation, 1);
    const desired = desiredStateFromStored({ body: stored.body!, signature: stored.signature! });
    const root = (await testBundle()).commandSigning!.certificate.der;
    const verified = verifyDesiredState(desired, { roots: [root], now: t0, nodeId: 'spec-node', required: true, trustDomain });
    assert.equal(verified.body.generation, 1n);
    assert.equal(await write({ daemon: { statusIntervalSeconds: 30 } }), 1);
    assert.equal(await write({ daemon: { statusIntervalSeconds: 31 } }), 2);
  });

  it('refuses what is no spec, an unknown node, and a writer that lost', async () => {
    await assert.rejects(write({ daemon: { colour: 'red' } }), refused('MALFORMED', /is not a NodeSpec/, 'node-spec'));
    const unknown = writeNodeSpec({ db: used.db, worker, trustDomain, nodeId: 'nobody', spec: {}, now: t0 });
    await assert.rejects(unknown, refused('NOT_FOUND', /no node is called nobody/, 'unknown-node'));
    // Another writer is faster while this one waits for its key.
    const overtaken: WorkerKeyProvider = {
      async current() {
        await write({ daemon: { statusIntervalSeconds: 50 } });
        return worker.current();
      },
    };
    const slow = writeNodeSpec({
      db: used.db,
      worker: overtaken,
      trustDomain,
      nodeId: 'spec-node',
      spec: { daemon: { statusIntervalSeconds: 51 } },
      now: t0,
    });
    await assert.rejects(slow, refused('CONFLICT', /the spec of node spec-node changed meanwhile/, 'spec-changed'));
  });
});

describe('signing again', () => {
  const used = useDatabase();
  let old: PkiBundle;
  let next: PkiBundle;
  let bundle: PkiBundle;
  let now = t0;
  let worker: WorkerKeyProvider;
  before(async () => {
    old = await createBundle({ trustDomain, now: t0 - day });
    const added = nextGeneration((await addCommandRoot(old, { rotationId: 'r', now: t0 })).bundle);
    next = nextGeneration(switchCommandRoot(added, { rotationId: 'r', now: t0 }).bundle);
    bundle = old;
    worker = await keyring(used.db, { bundle: () => bundle, now: () => now });
  });
  const resign = (options: Partial<ResignOptions>) =>
    resignCommands({
      db: used.db,
      worker,
      roots: [...bundle.commandRootsById.values()].map((root) => root.certificate.der),
      now,
      ...options,
    });

  it('H-05 signs what waits under the new root: bodies stay byte for byte, ended commands stay as they are', async () => {
    const commands = [];
    for (let index = 0; index < 25; index++) {
      const id = `resign-${String(index).padStart(2, '0')}`;
      await addNode(used.db, id);
      commands.push(command(id));
    }
    await enqueueCommands({ db: used.db, worker, trustDomain, now, commands });
    const [ended, ...waiting] = commands.map(({ id }) => id);
    await cancelCommand(used.db, { id: ended!, reason: 'done', now });
    await writeNodeSpec({ db: used.db, worker, trustDomain, nodeId: 'resign-00', spec: { daemon: { statusIntervalSeconds: 9 } }, now });
    const [before, specBefore] = [await readCommands(used.db, [ended!, ...waiting]), (await findStoredSpec(used.db, 'resign-00'))!];
    const oldRoot = old.commandSigning!.id;
    assert.equal(await countSignedUnder(used.db, oldRoot), 25);

    await assert.rejects(resign({ underRoot: oldRoot }), refused('INVALID_STATE', /still signs under root/, 'signs-under-root'));
    bundle = next;
    const seen: number[] = [];
    const resigned = await resign({
      underRoot: oldRoot,
      pageSize: 10,
      onProgress: (done) => void seen.push(done),
    });
    assert.deepEqual(resigned, { commands: 24, specs: 1, withdrawn: 0 });
    assert.deepEqual(seen, [10, 20, 24, 25]);
    assert.equal(await countSignedUnder(used.db, oldRoot), 0);

    const after = await readCommands(used.db, [ended!, ...waiting]);
    assert.deepEqual(after.get(ended!), before.get(ended!));
    const root = next.commandSigning!;
    for (const id of waiting) {
      const [was, is] = [before.get(id)!, after.get(id)!];
      assert.deepEqual(
        { ...is, signature: 0, signerRoot: 0, signerNotAfter: 0 },
        { ...was, signature: 0, signerRoot: 0, signerNotAfter: 0 },
      );
      assert.equal(is.signerRoot, root.id);
      verifyIntent({
        purpose: 'command',
        body: is.body,
        signature: parseSignature(is.signature),
        roots: [root.certificate.der],
        now,
        required: true,
      });
    }
    const spec = (await findStoredSpec(used.db, 'resign-00'))!;
    assert.deepEqual([Buffer.from(spec.body!), spec.generation], [Buffer.from(specBefore.body!), specBefore.generation]);
    verifyDesiredState(desiredStateFromStored({ body: spec.body!, signature: spec.signature! }), {
      roots: [root.certificate.der],
      now,
      nodeId: 'resign-00',
      required: true,
    });
    assert.deepEqual(await resign({ underRoot: oldRoot }), { commands: 0, specs: 0, withdrawn: 0 });
  });

  it('H-05 signs again what would outlive its signer, and ends although the new signer ends as soon', async () => {
    const first = await worker.current();
    assert.deepEqual(await resign({ expiringBefore: first.notAfter }), { commands: 0, specs: 0, withdrawn: 0 });
    assert.deepEqual(await resign({ expiringBefore: first.notAfter + 1, pageSize: 7 }), {
      commands: 24,
      specs: 1,
      withdrawn: 0,
    });
    now = t0 + 15 * hour;
    assert.deepEqual(await resign({ expiringBefore: first.notAfter + 1 }), { commands: 24, specs: 1, withdrawn: 0 });
    assert.deepEqual(await resign({ expiringBefore: first.notAfter + 1 }), { commands: 0, specs: 0, withdrawn: 0 });
  });

  it('H-05 signs nothing again that was edited in the database: it is withdrawn, and the trail says so', async () => {
    now = t0 + 15 * hour;
    const nodes = ['edited', 'swapped', 'strange', 'kept'];
    for (const id of nodes) await addNode(used.db, id);
    const commands = nodes.map((id) => ({ ...command(id), deadlineMs: now + hour }));
    await enqueueCommands({ db: used.db, worker, trustDomain, now, commands });
    const [edited, swapped, strange, kept] = commands.map(({ id }) => id) as [string, string, string, string];
    const run = (text: string, values: readonly unknown[]) => used.db.query({ text }, values);
    await run(`update node_commands set body = set_byte(body, 3, get_byte(body, 3) # 1) where id = $1`, [edited]);
    await run(`update node_commands c set body = o.body from node_commands o where c.id = $1 and o.id = $2`, [swapped, kept]);
    // As valid as can be, by a key that no root of ours certified.
    const foreign = await createBundle({ trustDomain, now: t0 - day });
    const root = foreign.commandSigning!;
    const other = await createWorkerKey({
      root: { certificate: root.certificate.der, signer: root.signer() },
      now,
      lifetimeMs: hour,
      serial: createSerial(),
    });
    const [row] = [...(await readCommands(used.db, [strange])).values()];
    const signature = toBinary(SignatureSchema, await signCommand(other, row!.body));
    await run(`update node_commands set signature = $2 where id = $1`, [strange, signature]);
    await writeNodeSpec({ db: used.db, worker, trustDomain, nodeId: 'edited', spec: { daemon: { statusIntervalSeconds: 9 } }, now });
    await run(`update nodes set spec_body = spec_body || '\\x00'::bytea where id = 'edited'`, []);
    await registerWait(used.db, { commandId: edited, workflowId: 'w', runId: 'r', activityId: 'a', now });

    const { notAfter } = await worker.current();
    const again = await resign({ expiringBefore: notAfter + 1 });
    assert.equal(again.withdrawn, 4);
    const after = await readCommands(used.db, [edited, swapped, strange, kept]);
    assert.deepEqual(
      [edited, swapped, strange, kept].map((id) => after.get(id)?.state),
      [commandStates.cancelled, commandStates.cancelled, commandStates.cancelled, commandStates.open],
    );
    assert.match(after.get(strange)?.rejectReason ?? '', /^not signed again: .*none of the 2 held roots$/);
    const spec = (await findStoredSpec(used.db, 'edited'))!;
    assert.deepEqual([spec.body, spec.signature, spec.spec], [null, null, {}]);
    const trail = await used.db.query<{ action: string; subject: string }>({
      text: `select action, subject from audit_events where action like '%.withdrawn' order by action, subject`,
    });
    assert.deepEqual(
      trail.map(({ action, subject }) => [action, subject]),
      [...[edited, strange, swapped].sort().map((id) => ['command.withdrawn', id]), ['node.spec.withdrawn', 'edited']],
    );
    assert.deepEqual(
      (await takeDueCompletions(used.db, { now, limit: 5 })).map(({ commandId }) => commandId),
      [edited],
    );
    assert.equal((await resign({ expiringBefore: notAfter + 1 })).withdrawn, 0);
  });
});
