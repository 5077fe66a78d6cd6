/** A forced drop outruns what is being signed: nothing enters a log under a root that is not published, and what waits is repaired. */
import assert from 'node:assert/strict';
import { day, hour } from '../../domain/time.ts';
import { readCommands } from '../../drizzle/queries/commands.ts';
import {
  addCommandRoot,
  createBundle,
  dropCommandRoot,
  nextGeneration,
  type PkiBundle,
  switchCommandRoot,
} from '../../pki/bundle/index.ts';
import type { WorkerKey } from '../../pki/envelope/index.ts';
import { countSignedUnder, enqueueCommands, resignCommands } from '../../services/command-queue.ts';
import { writeNodeSpec } from '../../services/desired-state.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, keyring, recordingLog, refused, t0, trustDomain } from './support.ts';

describe('a forced drop', () => {
  const used = useDatabase();
  let added: PkiBundle;
  let dropped: PkiBundle;
  let oldKey: WorkerKey;
  let newKey: WorkerKey;
  let version = 0;

  before(async () => {
    const old = await createBundle({ trustDomain, now: t0 - day });
    added = nextGeneration((await addCommandRoot(old, { rotationId: 'r', now: t0 })).bundle);
    const switched = nextGeneration(switchCommandRoot(added, { rotationId: 'r', now: t0 + hour }).bundle);
    const forced = { rotationId: 'r', now: t0 + 2 * hour, opensAt: Number.MAX_SAFE_INTEGER, forcedReason: 'the key leaked (ada)' };
    dropped = nextGeneration(dropCommandRoot(switched, forced).bundle);
    oldKey = await (await keyring(used.db, { bundle: () => added })).current();
    newKey = await (await keyring(used.db, { bundle: () => switched })).current();
  });

  const publish = async (bundle: PkiBundle): Promise<void> => {
    const options = { db: used.db, floorOption: version + 1, overlapMs: day, processId: 'api', now: t0, log: recordingLog() };
    const published = await settleAndPublish({ ...options, bundle });
    assert.equal(published.kind, 'publish');
    version = published.version;
  };
  /** Takes the key at hand, then stalls: meanwhile the deployment drops its root. */
  const stalled = (then: WorkerKey): WorkerKeyProvider => {
    let calls = 0;
    return {
      async current() {
        calls += 1;
        if (calls > 1) return then;
        await publish(dropped);
        return oldKey;
      },
    };
  };
  const enqueue = (worker: WorkerKeyProvider, nodes: readonly string[]) =>
    enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands: nodes.map((node) => command(node)) });

  for (const count of [1, 7]) {
    it(`H-05 ${count} command(s) signed before it and stored after it are signed again, under the root that stays`, async () => {
      await publish(added);
      const nodes = Array.from({ length: count }, (_, n) => `stall-${count}-${n}`);
      for (const node of nodes) await addNode(used.db, node);
      const { enqueued } = await enqueue(stalled(newKey), nodes);
      assert.equal(enqueued.length, count);
      const stored = [...(await readCommands(used.db, enqueued)).values()];
      assert.deepEqual(
        stored.map(({ signerRoot, seq }) => [signerRoot, seq]),
        nodes.map(() => [newKey.rootId, 1]),
      );
    });
  }

  it('H-05 a process that still signs under the dropped root stores nothing, and is told that a retry may help', async () => {
    await publish(added);
    await addNode(used.db, 'stall-late');
    await assert.rejects(enqueue(stalled(oldKey), ['stall-late']), refused('CONFLICT', /what is published changed while/, 'node-changed'));
    assert.equal(await countSignedUnder(used.db, oldKey.rootId), 0);
  });

  it('H-05 what was in the logs before it is withdrawn by the schedule, not signed again: the dropped root may be a stolen one', async () => {
    await publish(added);
    await addNode(used.db, 'before-drop');
    await enqueue({ current: async () => oldKey }, ['before-drop']);
    await writeNodeSpec({
      db: used.db,
      worker: { current: async () => oldKey },
      trustDomain,
      nodeId: 'before-drop',
      spec: { daemon: { statusIntervalSeconds: 9 } },
      now: t0,
    });
    const roots = [...dropped.commandRootsById.values()].map((root) => root.certificate.der);
    const again = () => resignCommands({ db: used.db, worker: { current: async () => newKey }, roots, now: t0, underUnpublished: true });
    assert.deepEqual(await again(), { commands: 0, specs: 0, withdrawn: 0 }, 'both roots are published');
    await publish(dropped);
    assert.deepEqual(await again(), { commands: 0, specs: 0, withdrawn: 2 });
    assert.equal(await countSignedUnder(used.db, oldKey.rootId), 0);
    assert.deepEqual(await again(), { commands: 0, specs: 0, withdrawn: 0 });
  });
});
