import assert from 'node:assert/strict';
import { day, hour, minute, second as oneSecond } from '../../domain/time.ts';
import { addCommandRoot, bundleDigest, createBundle, nextGeneration, type PkiBundle, switchCommandRoot } from '../../pki/bundle/index.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import { assertFresh, isFleetAhead } from '../../services/freshness.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { lastWorkerNotAfter } from '../../services/worker-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { connect, enrol, keyring, recordingLog, refused, t0, trustDomain } from './support.ts';

async function switched(bundle: PkiBundle): Promise<PkiBundle> {
  const added = nextGeneration((await addCommandRoot(bundle, { rotationId: 'r1', now: t0 })).bundle);
  return nextGeneration(switchCommandRoot(added, { rotationId: 'r1', now: t0 }).bundle);
}

describe('worker keys', () => {
  const used = useDatabase({ max: 20 });
  let first: PkiBundle;
  let second: PkiBundle;
  before(async () => {
    first = await createBundle({ trustDomain, now: t0 - day });
    second = await switched(first);
  });
  beforeEach(() => used.db.query({ text: 'delete from bundle_freshness' }));

  const rows = () =>
    used.db.query<{ serial: string; rootId: string; notBefore: number; notAfter: number }>({
      text: `select serial, root_id as "rootId", not_before as "notBefore", not_after as "notAfter" from worker_certs order by issued_at`,
    });

  it('H-03 H-15 SIGN-003 SIGN-004 records the certificate before the key is used, with times that cover it', async () => {
    const key = await (await keyring(used.db, { bundle: () => first })).current();
    const [row] = await rows();
    const certificate = parseCertificate(key.certificate);
    assert.equal(certificate.serial, row?.serial);
    assert.equal(certificate.role, 'worker');
    assert.ok(row!.notBefore <= certificate.notBefore && certificate.notAfter <= row!.notAfter);
    assert.ok(certificate.notAfter - t0 <= day);
    assert.equal(row?.rootId, first.commandSigning?.id);
    assert.equal(await lastWorkerNotAfter(used.db, first.commandSigning!.id), row?.notAfter);
    assert.equal(await lastWorkerNotAfter(used.db, 'ff'), null);
  });

  it('SIGN-007 keeps a key to 60 % of its life, and many callers share one', async () => {
    let now = t0;
    const ring = await keyring(used.db, { bundle: () => first, now: () => now, recheckMs: minute });
    const before = (await rows()).length;
    const keys = await Promise.all(Array.from({ length: 20 }, () => ring.current()));
    assert.equal(new Set(keys).size, 1);
    now = t0 + 14 * hour;
    assert.equal(await ring.current(), keys[0]);
    now = t0 + 14.4 * hour + oneSecond;
    const next = await ring.current();
    assert.notEqual(next.serial, keys[0]?.serial);
    assert.equal((await rows()).length, before + 2);
  });

  it('SIGN-016 takes a new key at once when the bundle signs under another root; no key of the former one outlives a day', async () => {
    let bundle = first;
    let now = t0;
    const ring = await keyring(used.db, { bundle: () => bundle, now: () => now });
    const former = await ring.current();
    assert.equal(former.rootId, first.commandSigning?.id);
    assert.ok(former.notAfter <= t0 + day);
    const certified = async () => (await rows()).filter(({ rootId }) => rootId === former.rootId).length;
    const before = await certified();
    bundle = second;
    for (; now <= t0 + day; now += 6 * hour) assert.equal((await ring.current()).rootId, second.commandSigning?.id);
    assert.equal(await certified(), before, 'the former root certifies nothing any more');
  });

  it('keeps the key when another bundle signs under the same root', async () => {
    let bundle = first;
    const ring = await keyring(used.db, { bundle: () => bundle });
    const key = await ring.current();
    bundle = nextGeneration(first);
    assert.equal(await ring.current(), key);
  });

  it('C21 H-07 a process that loads an older bundle signs nothing and says how to repair it', async () => {
    await (await keyring(used.db, { bundle: () => second })).current();
    const before = (await rows()).length;
    const stale = await keyring(used.db, { bundle: () => first });
    await assert.rejects(
      stale.current(),
      refused('STALE_BUNDLE', /is generation 1, the deployment runs 3: restore the current one/, 'bundle-replaced'),
    );
    assert.equal((await rows()).length, before, 'no certificate was recorded');
  });

  it('H-07 a running process stops signing when the deployment moves on without it', async () => {
    let now = t0;
    const ring = await keyring(used.db, { bundle: () => first, now: () => now });
    await ring.current();
    await (await keyring(used.db, { bundle: () => second })).current();
    now = t0 + 6 * oneSecond;
    await assert.rejects(ring.current(), refused('STALE_BUNDLE', /restore the current one/, 'bundle-replaced'));
  });

  it('a process that is behind waits for its own watch, so a step of a rotation fails no command', async () => {
    let bundle = first;
    await (await keyring(used.db, { bundle: () => second })).current();
    const ring = await keyring(used.db, { bundle: () => bundle, catchUpMs: 5_000 });
    const key = ring.current();
    setTimeout(() => {
      bundle = second;
    }, 150);
    assert.equal((await key).rootId, second.commandSigning?.id);
  });

  it('H-07 a process that waited in vain refuses at once from then on, and waits again for another bundle', async () => {
    let bundle = first;
    let looks = 0;
    await (await keyring(used.db, { bundle: () => second })).current();
    const now = (): number => {
      looks += 1;
      return t0;
    };
    const ring = await keyring(used.db, { bundle: () => bundle, catchUpMs: 300, now });
    const behind = refused('STALE_BUNDLE', /restore the current one/, 'bundle-replaced');
    await assert.rejects(ring.current(), behind);
    const waiting = looks;
    await assert.rejects(ring.current(), behind);
    assert.equal(looks - waiting, 2);
    assert.ok(waiting > 2);
    bundle = second;
    assert.equal((await ring.current()).rootId, second.commandSigning?.id);
  });

  it('C16 H-07 two bundles of one generation are refused: two operators changed two copies', async () => {
    const [a, b] = await Promise.all([switched(first), switched(first)]);
    await (await keyring(used.db, { bundle: () => a })).current();
    await assert.rejects(
      (await keyring(used.db, { bundle: () => b })).current(),
      refused('STALE_BUNDLE', /two different key bundles call themselves generation 3/, 'bundle-forked'),
    );
  });

  it('refuses a bundle that signs no commands', async () => {
    const { commandSigning: _none, ...rest } = first;
    await assert.rejects(
      (await keyring(used.db, { bundle: () => rest })).current(),
      refused('INVALID_CONFIG', /no command-signing root/, 'no-command-signing'),
    );
  });
});

describe('a restored database', () => {
  const used = useDatabase();

  it('C20 H-07 signs nothing while the fleet holds a version it never published', async () => {
    const bundle = await createBundle({ trustDomain, now: t0 - day });
    await settleAndPublish({ db: used.db, bundle, floorOption: 2, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });
    const nodes = await Promise.all(['ahead-a', 'ahead-b', 'ahead-c', 'ahead-d'].map((id) => enrol(used.db, id)));
    await Promise.all(nodes.map((node) => connect(used.db, node, { trustVersion: 3, now: null })));
    const fresh = { generation: bundle.generation, digest: bundleDigest(bundle) };
    const stale = refused(
      'STALE_BUNDLE',
      /4 of 4 connected node\(s\) hold trust version 3, the database has published only 2: .*BETTER_COMPUTE_TRUST_VERSION/,
      'database-behind-fleet',
    );
    await assert.rejects(assertFresh(used.db, fresh), stale);
    // Months away from the database's clock, as every test of this file: a host that is off does not look past its fleet.
    await assert.rejects((await keyring(used.db, { bundle: () => bundle, now: () => t0 })).current(), stale);
    assert.deepEqual(await used.db.query({ text: 'select 1 from worker_certs' }), []);
    // The repair that the message names.
    await settleAndPublish({ db: used.db, bundle, floorOption: 4, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });
    await assertFresh(used.db, fresh);
  });

  it('one node, or two of many, that claim a version of their own stop nobody', () => {
    const facts = (ahead: number, connected: number) => isFleetAhead({ ahead, connected, recorded: 2, highest: 99 });
    assert.deepEqual(
      [facts(0, 0), facts(0, 5), facts(1, 5), facts(2, 5), facts(3, 5), facts(1, 2), facts(2, 2), facts(1, 1)],
      [false, false, false, false, true, false, true, true],
    );
  });
});
