import assert from 'node:assert/strict';
import { ControlError } from '../../domain/errors.ts';
import { hour, minute } from '../../domain/time.ts';
import { parseCheckpoint } from '../../pki/audit/checkpoint.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { recordAudit } from '../../services/audit.ts';
import { verifyTenantTrail } from '../../services/audit-checkpoints.ts';
import { auditModule } from '../../services/audit-module.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedBundle, trustDomain } from '../pki/support.ts';
import { t0 } from './support.ts';

describe('sealing the audit trail', () => {
  const used = useDatabase({ max: 10 });
  let bundle: PkiBundle;
  let pin: string;
  before(async () => {
    bundle = await sharedBundle();
    pin = spkiPin((bundle.auditSigning as NonNullable<PkiBundle['auditSigning']>).spki);
  });
  const seal = (now: number) => auditModule({ signer: bundle.auditSigning }).checkpoint({ db: used.db, trustDomain, now });
  let made = 0;
  const write = (at: number, tenant?: string) =>
    recordAudit(
      used.db,
      { key: `e/${made++}`, actor: 'ann', action: 'test.act', subject: 's', details: {}, ...(tenant === undefined ? {} : { tenant }) },
      at,
    );
  const verify = (tenant: string) => verifyTenantTrail(used.db, { tenant, pin, trustDomain });

  it('AUD-001 AUD-002 AUD-003 KEY-035 one checkpoint an hour for each tenant with events, each behind the one before', async () => {
    assert.deepEqual(await seal(t0), []);
    for (const tenant of ['acme', undefined, 'acme', 'beta']) await write(t0, tenant);
    assert.deepEqual(await seal(t0), [
      { tenant: 'acme', number: 1, events: 2 },
      { tenant: 'beta', number: 1, events: 1 },
      { tenant: 'deployment', number: 1, events: 1 },
    ]);
    await write(t0 + 1, 'acme');
    assert.deepEqual(await seal(t0 + 30 * minute), [], 'not twice within the hour');
    assert.deepEqual(await seal(t0 + hour - minute), [{ tenant: 'acme', number: 2, events: 1 }], 'beta had no event');
    const rows = await used.db.query<{ document: Uint8Array }>({
      text: "select document from audit_checkpoints where tenant_id = 'acme' order by number",
    });
    const [first, second] = rows.map(({ document }) => parseCheckpoint(document));
    assert.deepEqual([first?.count, second?.count, second?.total], [2, 1, 3]);
    const verdict = await verify('acme');
    assert.deepEqual([verdict.valid, verdict.checkpoints, verdict.sealed, verdict.unsealed], [true, 2, 3, 0]);
  });

  it('AUD-003 many at once make one checkpoint', async () => {
    for (let at = 0; at < 20; at++) await write(t0 + 2 * hour, 'crowd');
    const answers = await Promise.all(Array.from({ length: 8 }, () => seal(t0 + 2 * hour)));
    assert.deepEqual(answers.flat(), [{ tenant: 'crowd', number: 1, events: 20 }]);
    assert.equal((await verify('crowd')).valid, true);
  });

  it('AUD-006 an event that was changed with its hash, removed, or moved to another tenant no longer matches its checkpoint', async () => {
    const statements: readonly [string, RegExp][] = [
      [
        "update audit_events set hash = sha256('x') where tenant_id = 'crowd' and seq = (select min(seq) + 3 from audit_events where tenant_id = 'crowd')",
        /does not match its hash/,
      ],
      [
        "delete from audit_events where tenant_id = 'crowd' and seq = (select max(seq) from audit_events where tenant_id = 'crowd')",
        /covers 20 event\(s\), the trail has 19/,
      ],
      [
        "update audit_events set tenant_id = 'other' where tenant_id = 'crowd' and seq = (select min(seq) from audit_events where tenant_id = 'crowd')",
        /covers 20 event\(s\), the trail has 19/,
      ],
      ["delete from audit_checkpoints where tenant_id = 'acme' and number = 1", /says that it is number 2: one before it is missing/],
    ];
    for (const [text, message] of statements) {
      const failed = used.db.transaction(async (tx) => {
        await tx.query({ text });
        const verdict = await verifyTenantTrail(tx, { tenant: text.includes("'acme'") ? 'acme' : 'crowd', pin, trustDomain });
        assert.equal(verdict.valid, false, text);
        assert.match(verdict.problems.map((problem) => problem.message).join('; '), message);
        throw new ControlError('CANCELLED', 'back to the intact trail');
      });
      await assert.rejects(failed, /back to the intact trail/);
    }
    assert.equal((await verify('crowd')).valid, true);
  });

  it('KEY-035 KEY-036 without an audit key nothing is sealed, and nothing fails', async () => {
    await write(t0, 'keyless');
    const module = auditModule({ signer: undefined });
    assert.equal(module.seals, false);
    assert.deepEqual(await module.checkpoint({ db: used.db, trustDomain, now: t0 + 9 * hour }), []);
    assert.deepEqual([(await verify('keyless')).checkpoints, (await verify('keyless')).unsealed], [0, 1]);
  });
});
