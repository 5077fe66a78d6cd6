/** The workload issuer's keys in a real database: shared by processes, sealed, changed under one lock, audited. */
import assert from 'node:assert/strict';
import { hour, minute } from '../../domain/time.ts';
import { openWorkloadKeys, type StoredWorkloadKey, sealWorkloadKeys } from '../../pki/workload/index.ts';
import {
  addWorkloadKey,
  ensureWorkloadKeys,
  listWorkloadKeys,
  promoteWorkloadKey,
  readWorkloadIssuer,
  retireWorkloadKey,
  type WorkloadSettings,
} from '../../services/workload-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { refused } from './support.ts';

const secret = 'a secret of thirty-two characters at least';
const settings: WorkloadSettings = { issuer: 'https://id.example.com', defaultAudience: 'https://api.example.com', audiences: [], secret };
const actor = 'olga';

describe('the keys of the workload issuer in the database', () => {
  const used = useDatabase();

  const row = async (): Promise<{ revision: number; sealed: Uint8Array }> =>
    (
      await used.db.query<{ revision: number; sealed: Uint8Array }>({
        text: 'select revision, sealed_keys as sealed from workload_issuers',
      })
    )[0] as never;
  const write = (revision: number, sealed: Uint8Array) =>
    used.db.query({ text: 'update workload_issuers set revision = $1, sealed_keys = $2' }, [revision, sealed]);
  /** Makes everything in the ring so much older, as only who knows the secret can. */
  async function age(ms: number): Promise<void> {
    const { revision, sealed } = await row();
    const seal = { secret, issuer: settings.issuer, revision };
    const older = (key: StoredWorkloadKey): StoredWorkloadKey => ({
      ...key,
      addedAt: key.addedAt - ms,
      ...(key.stoppedAt === undefined ? {} : { stoppedAt: key.stoppedAt - ms }),
    });
    await write(revision, sealWorkloadKeys(openWorkloadKeys(sealed, seal).map(older), seal));
  }
  const kids = async () => (await listWorkloadKeys(used.db, settings)).map(({ kid, state }) => `${kid} ${state}`);
  const events = async () =>
    (
      await used.db.query<{ action: string; actor: string; subject: string }>({
        text: 'select action, actor, subject from audit_events order by seq',
      })
    ).map((event) => `${event.action} ${event.actor} ${event.subject}`);

  beforeEach(async () => {
    await used.db.query({ text: 'truncate workload_issuers, audit_events' });
    assert.equal(await ensureWorkloadKeys(used.db, settings), true);
  });

  it('WID-003 are made once, however many processes start together', async () => {
    await used.db.query({ text: 'truncate workload_issuers, audit_events' });
    const made = await Promise.all(Array.from({ length: 8 }, () => ensureWorkloadKeys(used.db, settings)));
    assert.equal(made.filter(Boolean).length, 1);
    const [key] = await listWorkloadKeys(used.db, settings);
    assert.equal(key?.state, 'signing');
    assert.deepEqual(await events(), [`workload-key.create system ${key?.kid}`]);
  });

  it('WID-015 WID-018 a key that one process adds is published by every other at once, and signs in none', async () => {
    const before = await readWorkloadIssuer(used.db, settings);
    const { kid, changed } = await addWorkloadKey(used.db, settings, { actor });
    assert.equal(changed, true);
    const after = await readWorkloadIssuer(used.db, settings);
    const [old] = [...before.listKeys().keys()];
    assert.deepEqual(
      after.jwks().keys.map((key) => key.kid),
      [old, kid],
    );
    assert.deepEqual(await kids(), [`${old} signing`, `${kid} waiting`]);
    assert.deepEqual(await addWorkloadKey(used.db, settings, { actor }), { kid, changed: false }, 'a repeated order adds no second');
  });

  it('WID-019 WID-020 promote and retire keep their times by the clock of the database', async () => {
    const [old] = [...(await readWorkloadIssuer(used.db, settings)).listKeys().keys()] as [string];
    const { kid } = await addWorkloadKey(used.db, settings, { actor });
    await assert.rejects(
      promoteWorkloadKey(used.db, settings, { kid, actor }),
      refused('INVALID_STATE', /not promoting key/, 'promote-too-early'),
    );
    await age(5 * minute);
    await assert.rejects(
      promoteWorkloadKey(used.db, settings, { kid, actor }),
      refused('INVALID_STATE', /not promoting key/, 'promote-too-early'),
      'five minutes count from the commit, which was later than the clock that was read before it',
    );
    await age(minute / 2);
    assert.deepEqual(await promoteWorkloadKey(used.db, settings, { kid, actor }), { kid, changed: true });
    assert.deepEqual(await promoteWorkloadKey(used.db, settings, { kid, actor }), { kid, changed: false });
    await age(15 * minute);
    await assert.rejects(
      retireWorkloadKey(used.db, settings, { kid: old, actor }),
      refused('INVALID_STATE', /not retiring key/, 'retire-too-early'),
    );
    await age(minute);
    assert.deepEqual(await retireWorkloadKey(used.db, settings, { kid: old, actor }), { kid: old, changed: true });
    assert.deepEqual(await retireWorkloadKey(used.db, settings, { kid: old, actor }), { kid: old, changed: false }, 'done before');
    await assert.rejects(
      retireWorkloadKey(used.db, settings, { kid: 'never', actor }),
      refused('NOT_FOUND', /has no key "never"/, 'unknown-key'),
    );
    assert.deepEqual(await kids(), [`${kid} signing`]);
    assert.deepEqual((await events()).slice(1), [
      `workload-key.add olga ${kid}`,
      `workload-key.promote olga ${kid}`,
      `workload-key.retire olga ${old}`,
    ]);
  });

  it('WID-017 two operators at once change the ring one after the other: nothing is lost', async () => {
    const { kid } = await addWorkloadKey(used.db, settings, { actor });
    await age(hour);
    const done = await Promise.all([
      promoteWorkloadKey(used.db, settings, { kid, actor }),
      promoteWorkloadKey(used.db, settings, { kid, actor: 'otto' }),
      addWorkloadKey(used.db, settings, { actor: 'otto' }),
    ]);
    assert.equal(done.slice(0, 2).filter(({ changed }) => changed).length, 1);
    const states = (await listWorkloadKeys(used.db, settings)).map(({ state }) => state);
    // The third order found the key still waiting, or already signing.
    assert.ok([['former', 'signing'].join(), ['former', 'signing', 'waiting'].join()].includes(states.join()), states.join());
  });

  it('WID-042 nothing of the keys is in the clear, and the seal holds issuer and revision', async () => {
    const { revision, sealed } = await row();
    const seal = { secret, issuer: settings.issuer, revision };
    const [key] = openWorkloadKeys(sealed, seal) as [StoredWorkloadKey];
    for (const text of [key.kid, 'PRIVATE', key.privateKey.split('\n')[1] as string]) assert.ok(!Buffer.from(sealed).includes(text), text);
    assert.notDeepEqual(sealWorkloadKeys([key], seal), sealWorkloadKeys([key], seal));
    const open = (change: Partial<typeof seal>, bytes = sealed) => openWorkloadKeys(bytes, { ...seal, ...change });
    const flipped = Buffer.from(sealed);
    flipped[60] = (flipped[60] as number) ^ 1;
    for (const run of [
      () => open({ secret: `${secret}.` }),
      () => open({ issuer: 'https://other.example.com' }),
      () => open({ revision: revision + 1 }),
      () => open({}, flipped),
      () => open({}, Buffer.from(sealed).subarray(0, -1)),
      () => open({}, Buffer.alloc(12)),
    ])
      assert.throws(run, refused('INVALID_CONFIG', /do not open: .*restore it from a backup$/, 'workload-seal'));
    assert.throws(
      () => sealWorkloadKeys([key], { ...seal, secret: 'short' }),
      refused('MISSING_ENV', /BETTER_COMPUTE_SECRET/, 'secret-too-short'),
    );
  });

  it('WID-012 whoever writes the table without the secret publishes no key of his own', async () => {
    const { revision, sealed } = await row();
    const foreign = sealWorkloadKeys(openWorkloadKeys(sealed, { secret, issuer: settings.issuer, revision }), {
      secret: 'another secret, of thirty-two characters and more',
      issuer: settings.issuer,
      revision,
    });
    await write(revision, foreign);
    await assert.rejects(readWorkloadIssuer(used.db, settings), refused('INVALID_CONFIG', /do not open/, 'workload-seal'));
    await assert.rejects(ensureWorkloadKeys(used.db, settings), refused('INVALID_CONFIG', /do not open/, 'workload-seal'));
    await used.db.query({ text: 'truncate workload_issuers' });
    await assert.rejects(readWorkloadIssuer(used.db, settings), refused('INVALID_STATE', /has no keys yet/, 'no-workload-keys'));
  });
});
