import assert from 'node:assert/strict';
import { day, hour } from '../../domain/time.ts';
import { readCommands } from '../../drizzle/queries/commands.ts';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { addCommandRoot, createBundle, nextGeneration, type PkiBundle, switchCommandRoot } from '../../pki/bundle/index.ts';
import { desiredStateFromStored, parseSignature, verifyDesiredState, verifyIntent } from '../../pki/envelope/index.ts';
import { cancelCommand, countSignedUnder, enqueueCommands, resignCommands } from '../../services/command-queue.ts';
import { writeNodeSpec } from '../../services/desired-state.ts';
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

    await assert.rejects(
      resignCommands({ db: used.db, worker, underRoot: oldRoot }),
      refused('INVALID_STATE', /still signs under root/, 'signs-under-root'),
    );
    bundle = next;
    const seen: number[] = [];
    const resigned = await resignCommands({
      db: used.db,
      worker,
      underRoot: oldRoot,
      pageSize: 10,
      onProgress: (done) => void seen.push(done),
    });
    assert.deepEqual(resigned, { commands: 24, specs: 1 });
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
    assert.deepEqual(await resignCommands({ db: used.db, worker, underRoot: oldRoot }), { commands: 0, specs: 0 });
  });

  it('H-05 signs again what would outlive its signer, and ends although the new signer ends as soon', async () => {
    const first = await worker.current();
    assert.deepEqual(await resignCommands({ db: used.db, worker, expiringBefore: first.notAfter }), { commands: 0, specs: 0 });
    assert.deepEqual(await resignCommands({ db: used.db, worker, expiringBefore: first.notAfter + 1, pageSize: 7 }), {
      commands: 24,
      specs: 1,
    });
    now = t0 + 15 * hour;
    assert.deepEqual(await resignCommands({ db: used.db, worker, expiringBefore: first.notAfter + 1 }), { commands: 24, specs: 1 });
    assert.deepEqual(await resignCommands({ db: used.db, worker, expiringBefore: first.notAfter + 1 }), { commands: 0, specs: 0 });
  });
});
