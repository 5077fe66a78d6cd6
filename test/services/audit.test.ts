import assert from 'node:assert/strict';
import { type AuditEvent, appendAudit, readAuditEvents, recordAudit, verifyAuditChain } from '../../services/audit.ts';
import { readEvidence, readOverrides, recordEvidence, recordOverride } from '../../services/rotations.ts';
import { useDatabase } from '../harness/postgres.ts';
import { refused, t0 } from './support.ts';

const event = (key: string, changes: Partial<AuditEvent> = {}): AuditEvent => ({
  key,
  actor: 'olga',
  action: 'test.act',
  subject: 'thing',
  details: { b: 2, a: ['ä', null, true, { z: 1, y: 'x' }] },
  ...changes,
});

describe('the audit trail', () => {
  const used = useDatabase({ max: 20 });

  it('chains events in the order of commits, from many writers at once', async function () {
    this.timeout(20_000);
    await Promise.all(Array.from({ length: 40 }, (_, index) => recordAudit(used.db, event(`many/${index}`), t0 + index + 0.7)));
    const { events, head } = await verifyAuditChain(used.db);
    assert.equal(events, 40);
    assert.deepEqual(Buffer.from(head), Buffer.from((await readAuditEvents(used.db, { afterSeq: 39, limit: 9 }))[0]!.hash));
  });

  it('appends a key once, and refuses the key of another event', async () => {
    const first = await recordAudit(used.db, event('once'), t0);
    assert.deepEqual(await recordAudit(used.db, event('once', { details: {} }), t0 + 1), { seq: first.seq, appended: false });
    await assert.rejects(
      recordAudit(used.db, event('once', { action: 'other' }), t0),
      refused('CONFLICT', /audit key once names another event/, 'audit-key-used'),
    );
  });

  it('leaves with the change it belongs to', async () => {
    const before = (await verifyAuditChain(used.db)).events;
    const failed = used.db.transaction(async (tx) => {
      await appendAudit(tx, event('rolled-back'), t0);
      throw new Error('the change failed');
    });
    await assert.rejects(failed);
    assert.equal((await verifyAuditChain(used.db)).events, before);
  });

  it('AUD-006 takes no event for missing that is written while the chain is read', async () => {
    let written = 0;
    const busy = {
      query: async (s: { text: string }, values?: readonly unknown[]) => {
        // Between the last page and the counter, twice.
        if (s.text.includes('audit_counter') && written < 2) {
          written += 1;
          await recordAudit(used.db, event(`meanwhile/${written}`), t0);
        }
        return (await used.db.query(s, values)) as never;
      },
      run: used.db.run,
    };
    const before = (await verifyAuditChain(used.db)).events;
    assert.equal((await verifyAuditChain(busy)).events, before + 2);
  });

  it('AUD-006 names the first event that was changed, removed, or cut off', async () => {
    const tamper = async (statements: string[], message: RegExp) => {
      const client = await used.db.pool.connect();
      try {
        await client.query('begin');
        for (const statement of statements) await client.query(statement);
        const reader = {
          query: async (s: { text: string }, values?: readonly unknown[]) => (await used.db.query(s, values)) as never,
          run: used.db.run,
        };
        await client.query('commit');
        await assert.rejects(verifyAuditChain(reader), refused('AUDIT_TAMPERED', message, 'audit-chain'));
      } finally {
        client.release();
      }
    };
    await used.db.query({ text: 'create table kept as select * from audit_events' });
    const restore = ['delete from audit_events', 'insert into audit_events select * from kept'];
    await tamper([`update audit_events set actor = 'mallory' where seq = 7`], /audit event 7 does not match its hash/);
    await tamper([...restore, `update audit_events set details = '{}' where seq = 9`], /audit event 9 does not match its hash/);
    await tamper([...restore, `update audit_events set at = at + interval '1 ms' where seq = 3`], /audit event 3 does not match its hash/);
    await tamper([...restore, 'delete from audit_events where seq = 12'], /audit event 12 is missing/);
    await tamper(
      [...restore, 'delete from audit_events where seq = (select max(seq) from audit_events)'],
      /is missing at the end of the chain/,
    );
    await tamper([...restore, `update audit_events set prev_hash = hash where seq = 5`], /audit event 5 does not follow the one before it/);
    for (const statement of restore) await used.db.query({ text: statement });
    await verifyAuditChain(used.db);
  });

  it('refuses details that have no one spelling', async () => {
    await assert.rejects(
      recordAudit(used.db, event('fraction', { details: { a: 0.5 } }), t0),
      refused('MALFORMED', /no integer that has one spelling/),
    );
    assert.ok((await verifyAuditChain(used.db)).events > 0);
  });
});

describe('decisions and evidence of a rotation', () => {
  const used = useDatabase({ max: 10 });
  const override = (changes: object = {}) => ({
    rotationId: 'r1',
    override: { kind: 'force' as const, subject: 'fleet', actor: 'olga', reason: 'rack 7 is dark', ...changes },
    details: { behind: ['node-1'] },
    now: t0,
  });

  it('H-08 records a decision once with its audit event, whoever repeats it', async () => {
    const answers = await Promise.all([
      recordOverride(used.db, override()),
      recordOverride(used.db, override()),
      recordOverride(used.db, override({ actor: 'igor', reason: 'me too' })),
    ]);
    assert.equal(new Set(answers.map((answer) => `${answer.actor} ${answer.reason}`)).size, 1);
    await recordOverride(used.db, override({ kind: 'exclude', subject: 'node-9' }));
    await recordOverride(used.db, override({ kind: 'abort', subject: '' }));
    assert.deepEqual(
      (await readOverrides(used.db, 'r1')).map((row) => [row.kind, row.subject]),
      [
        ['abort', ''],
        ['exclude', 'node-9'],
        ['force', 'fleet'],
      ],
    );
    assert.deepEqual(await readOverrides(used.db, 'r2'), []);
    const events = await readAuditEvents(used.db, { afterSeq: 0, limit: 9 });
    assert.deepEqual(
      events.map((row) => row.action),
      ['rotation.force', 'rotation.exclude', 'rotation.abort'],
    );
    assert.deepEqual(events[0]?.details['behind'], ['node-1']);
  });

  it('refuses a decision without actor or reason', async () => {
    for (const changes of [{ actor: '' }, { reason: '  ' }]) {
      await assert.rejects(
        recordOverride(used.db, override(changes)),
        refused('INVALID_INPUT', /force needs an actor and a reason/, 'reason-needed'),
      );
    }
  });

  it('H-17 keeps one document a stage; the same again changes nothing, another is refused', async () => {
    const evidence = {
      rotationId: 'r1',
      stage: 'add',
      at: t0,
      document: Buffer.from('{"stage":"add"}'),
      signature: Buffer.alloc(64, 1),
      actor: 'olga',
    };
    await recordEvidence(used.db, evidence);
    await recordEvidence(used.db, { ...evidence, at: t0 + 5, signature: Buffer.alloc(64, 2) });
    await assert.rejects(
      recordEvidence(used.db, { ...evidence, document: Buffer.from('{}') }),
      refused('CONFLICT', /stage add of rotation r1 has left other evidence/, 'evidence-differs'),
    );
    const rows = await readEvidence(used.db, 'r1');
    assert.deepEqual([rows.length, rows[0]?.at, Buffer.from(rows[0]!.signature)], [1, t0, Buffer.alloc(64, 1)]);
    assert.equal(
      (await readAuditEvents(used.db, { afterSeq: 0, limit: 9 })).filter((row) => row.action === 'rotation.stage.add').length,
      1,
    );
    await verifyAuditChain(used.db);
  });
});
