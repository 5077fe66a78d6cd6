import assert from 'node:assert/strict';
import { day } from '../../domain/time.ts';
import { addCommandRoot, createBundle, encodeBundle, updateBundle } from '../../pki/bundle/index.ts';
import { createDatabaseBundleStore, insertBundle } from '../../services/bundle-store.ts';
import { useDatabase } from '../harness/postgres.ts';
import { recordingLog, refused, t0, trustDomain } from './support.ts';

const secret = 'a secret of thirty-two characters, or more';

describe('the key bundle in the database', () => {
  const used = useDatabase({ max: 10 });
  const store = (pollMs = 10) => createDatabaseBundleStore({ db: used.db, now: () => t0, log: recordingLog(), pollMs });

  it('is absent, then there once', async () => {
    await assert.rejects(store().read(), refused('NOT_FOUND', /holds no key bundle/, 'no-bundle'));
    const text = encodeBundle(await createBundle({ trustDomain, now: t0 - day }), { secret });
    await insertBundle(used.db, text, t0);
    await assert.rejects(insertBundle(used.db, text, t0), refused('INVALID_STATE', /holds a key bundle already/, 'bundle-exists'));
    assert.deepEqual(await store().read(), { text, revision: '1' });
  });

  it('C18 compares and swaps: of two writers of one revision one wins', async () => {
    const { text, revision } = await store().read();
    const answers = await Promise.allSettled([store().replace(`${text} `, revision), store().replace(`${text}  `, revision)]);
    const lost = answers.filter((answer) => answer.status === 'rejected');
    assert.equal(lost.length, 1);
    refused('CONFLICT', /is no longer revision 1/, 'bundle-changed')((lost[0] as PromiseRejectedResult).reason);
    assert.equal((await store().read()).revision, '2');
  });

  it('C16 serves the loop of a rotation step: two operators, one rotation', async () => {
    const add = (rotationId: string) =>
      updateBundle(store(), secret, async (bundle) => (await addCommandRoot(bundle, { rotationId, now: t0 })).bundle);
    const answers = await Promise.allSettled([add('r1'), add('r2')]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), ['fulfilled', 'rejected']);
    refused(
      'INVALID_STATE',
      /is in progress/,
      'rotation-in-progress',
    )((answers.find((answer) => answer.status === 'rejected') as PromiseRejectedResult).reason);
  });

  it('calls a watcher back after a change of another writer, and not before', async () => {
    let calls = 0;
    let changed: () => void = () => undefined;
    const heard = new Promise<void>((resolve) => {
      changed = resolve;
    });
    const watch = store(5).watch(() => {
      calls += 1;
      changed();
    });
    await new Promise((resolve) => setTimeout(resolve, 40));
    assert.equal(calls, 0);
    const { text, revision } = await store().read();
    await store().replace(text, revision);
    await heard;
    watch.close();
    assert.equal(calls, 1);
  });
});
