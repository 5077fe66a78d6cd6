import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { ControlError } from '../../domain/errors.ts';
import { createDatabase } from '../../drizzle/client.ts';
import { translateDatabaseError } from '../../drizzle/errors.ts';
import { useDatabase } from '../harness/postgres.ts';
import { refused } from '../services/support.ts';

describe('the database client', () => {
  const used = useDatabase({ statementTimeoutMs: 300 });

  it('gives instants as milliseconds, infinities included, and bigint as numbers', async () => {
    const [row] = await used.db.query({
      text: `select timestamptz '2026-03-01 12:00:00.5+00' as at, timestamptz 'infinity' as late, timestamptz '-infinity' as early, 9007199254740991::bigint as big, null::timestamptz as none`,
    });
    assert.deepEqual(row, { at: Date.UTC(2026, 2, 1, 12, 0, 0, 500), late: Infinity, early: -Infinity, big: 9007199254740991, none: null });
  });

  it('refuses a bigint it cannot hold', async () => {
    await assert.rejects(
      used.db.query({ text: 'select 9007199254740992::bigint as big' }),
      refused('INTERNAL', /beyond 2\^53: 9007199254740992/),
    );
  });

  it('ends a statement at its timeout with UNAVAILABLE, and the connection serves on', async () => {
    await assert.rejects(
      used.db.query({ text: 'select pg_sleep(5)' }),
      refused('UNAVAILABLE', /longer than a statement may/, 'statement-timeout'),
    );
    assert.deepEqual(await used.db.query({ text: 'select 1 as one' }), [{ one: 1 }]);
  });

  it('rolls a transaction back when its work throws, and passes our errors unchanged', async () => {
    const own = new ControlError('INVALID_STATE', 'not now');
    const work = used.db.transaction(async (tx) => {
      await tx.query({ text: `insert into sites (id) values ('rolled-back')` });
      throw own;
    });
    await assert.rejects(work, (error) => error === own);
    assert.deepEqual(await used.db.query({ text: `select id from sites where id = 'rolled-back'` }), []);
  });

  it('translates violations and what only this code can cause', async () => {
    const table = [
      [`insert into nodes (id, site_id, role) values ('n', 'nowhere', 'node')`, 'INVALID_STATE', /does not exist/, 'missing-reference'],
      [
        `insert into join_tokens (id, secret_sha256, site_id, role, created_by, expires_at) values ('t', '', 's', 'root', '', now())`,
        'INVALID_INPUT',
        /not one of those allowed/,
        'check-violation',
      ],
      ['select * from no_such_table', 'INVALID_STATE', /lacks a table of this version/, 'not-migrated'],
      ['selec', 'INTERNAL', /the database refused a statement/, 'database-error'],
    ] as const;
    for (const [text, code, message, reason] of table) await assert.rejects(used.db.query({ text }), refused(code, message, reason));
    await assert.rejects(
      used.db.query({ text: 'insert into sites (id) values ($1)' }, ['a\0b']),
      refused('INVALID_INPUT', /cannot store/, 'bad-text'),
    );
  });

  it('translates what the typed builder throws, too', async () => {
    await assert.rejects(
      used.db.run((orm) => orm.execute('select * from no_such_table')),
      refused('INVALID_STATE', /lacks a table/, 'not-migrated'),
    );
  });

  it('says UNAVAILABLE when the server cuts the connection, inside a transaction and outside, and recovers', async () => {
    const [{ pid }] = (await used.db.query<{ pid: number }>({ text: 'select pg_backend_pid() as pid' })) as [{ pid: number }];
    assert.ok(pid > 0);
    const cut = used.db.transaction(async (tx) => {
      const [own] = await tx.query<{ pid: number }>({ text: 'select pg_backend_pid() as pid' });
      await used.db.query({ text: 'select pg_terminate_backend($1)' }, [own!.pid]);
      await tx.query({ text: 'select 1' });
    });
    await assert.rejects(cut, (error) => error instanceof ControlError && error.code === 'UNAVAILABLE');
    assert.deepEqual(await used.db.query({ text: 'select 1 as one' }), [{ one: 1 }]);
  });
});

describe('a database that is away', () => {
  it('is UNAVAILABLE when nothing listens', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    const db = createDatabase(`postgresql://u:p@127.0.0.1:${port}/x`, { applicationName: 'test' });
    await assert.rejects(db.query({ text: 'select 1' }), refused('UNAVAILABLE', /does not answer/, 'database-away'));
    await assert.rejects(
      db.transaction(async () => undefined),
      refused('UNAVAILABLE', /does not answer/, 'database-away'),
    );
    await assert.rejects(db.connect(), refused('UNAVAILABLE', /does not answer/, 'database-away'));
    await db.close();
  });

  it('is UNAVAILABLE when it accepts and says nothing', async () => {
    const sockets: import('node:net').Socket[] = [];
    const server = createServer((socket) => void sockets.push(socket));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const db = createDatabase(`postgresql://u:p@127.0.0.1:${port}/x`, { applicationName: 'test', connectTimeoutMs: 50 });
    await assert.rejects(db.query({ text: 'select 1' }), refused('UNAVAILABLE', /connection to the database failed/, 'database-away'));
    await db.close();
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });

  it('names a missing database and a refused login as configuration', () => {
    const table = [
      ['3D000', 'INVALID_CONFIG', 'no-database'],
      ['28P01', 'INVALID_CONFIG', 'database-login'],
      ['57P01', 'UNAVAILABLE', 'database-away'],
      ['53300', 'UNAVAILABLE', 'database-full'],
      ['40P01', 'UNAVAILABLE', 'deadlock'],
      ['XX000', 'INTERNAL', 'database-error'],
    ] as const;
    for (const [code, expected, reason] of table) {
      const translated = translateDatabaseError(Object.assign(new Error('from the server'), { code }));
      assert.deepEqual([translated.code, translated.details['reason']], [expected, reason], code);
      assert.doesNotMatch(translated.message, /from the server/);
    }
  });
});
