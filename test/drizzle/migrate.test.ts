import assert from 'node:assert/strict';
import { getTableColumns, getTableName } from 'drizzle-orm';
import { ControlError } from '../../domain/errors.ts';
import { migrate, pendingMigrations, readMigrations } from '../../drizzle/migrate.ts';
import * as schema from '../../drizzle/schema/index.ts';
import { sharedServer, useDatabase } from '../harness/postgres.ts';

const refused = (code: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ControlError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

describe('migrations', () => {
  it('TRUST-005 TRUST-006 TRUST-013 run in the order of their numbers, core before quorum, each under the name the rules give it', async () => {
    const names = (await readMigrations()).map((migration) => migration.name);
    assert.deepEqual(names, [...names].sort());
    assert.equal(names[0], 'core/0001_nodes');
    for (const named of [
      'core/0008_session_versions',
      'core/0021_signed_specs',
      'core/0023_session_trust_version',
      'core/0026_session_approver_set',
    ]) {
      assert.ok(names.includes(named), named);
    }
    for (const named of ['quorum/0003_trust_bundle_state', 'quorum/0004_trust_bundle_approver_set', 'quorum/0006_trust_bundle_history']) {
      assert.ok(names.includes(named), named);
    }
  });

  it('BAT-002 QUO-015 QUO-021 BAT-046 BAT-053 the quorum module owns its tables, by migrations of the names the rules give', async () => {
    const names = (await readMigrations()).map((migration) => migration.name);
    const named = ['0001_batches', '0002_payload_digest', '0005_batch_request', '0007_leaf_payload', '0008_batch_agent'];
    for (const name of named) assert.ok(names.includes(`quorum/${name}`), name);
    const tables: string[] = Object.values(schema).map((table) => getTableName(table));
    for (const table of ['command_batches', 'command_batch_scope', 'command_batch_members', 'command_batch_approvals'])
      assert.ok(tables.includes(table), table);
    const columnsOf = (table: (typeof schema)[keyof typeof schema]) => Object.values(getTableColumns(table)).map((column) => column.name);
    assert.ok(
      columnsOf(schema.commandBatchScope).includes('payload_sha256') && columnsOf(schema.commandBatchMembers).includes('payload_sha256'),
    );
    assert.ok(
      columnsOf(schema.commandBatchScope).includes('payload_value') && columnsOf(schema.commandBatchScope).includes('payload_type_url'),
    );
    const batches = columnsOf(schema.commandBatches);
    for (const column of ['request_digest', 'created_by_agent', 'delegation_id']) assert.ok(batches.includes(column), column);
  });

  it('run once, however many processes start together', async function () {
    this.timeout(30_000);
    const database = await (await sharedServer()).createEmpty();
    const processes = Array.from({ length: 5 }, () => database.connect({ max: 1 }));
    const ran = await Promise.all(processes.map((db) => migrate(db.pool)));
    assert.deepEqual(
      ran.map((names) => names.length).sort((a, b) => a - b),
      [0, 0, 0, 0, (await readMigrations()).length],
    );
    assert.deepEqual(await migrate(processes[0]!.pool), []);
    await Promise.all(processes.map((db) => db.close()));
    await database.drop();
  });

  it('refuse a database that a newer version migrated', async () => {
    const known = await readMigrations();
    const applied = [...known, { name: 'core/9999_later', sql: '', checksum: 'x' }];
    assert.throws(() => pendingMigrations(known, applied), refused('INVALID_STATE', /migrated by a newer version \(core\/9999_later\)/));
  });

  it('refuse a migration that was changed after it ran', async () => {
    const known = await readMigrations();
    const applied = known.map((migration, index) => (index === 2 ? { ...migration, checksum: 'other' } : migration));
    assert.throws(() => pendingMigrations(known, applied), refused('INVALID_STATE', /changed after they ran \(core\/0003_commands\)/));
  });
});

describe('schema', () => {
  const used = useDatabase();

  it('equals the migrated database, column by column', async () => {
    const rows = await used.db.query<{ table: string; column: string; type: string; nullable: boolean; hasDefault: boolean }>({
      text: `select c.table_name as "table", c.column_name as "column", format_type(a.atttypid, a.atttypmod) as type,
               c.is_nullable = 'YES' as nullable, c.column_default is not null as "hasDefault"
             from information_schema.columns c
             join pg_class t on t.relname = c.table_name and t.relnamespace = 'public'::regnamespace
             join pg_attribute a on a.attrelid = t.oid and a.attname = c.column_name
             where c.table_schema = 'public' and c.table_name <> 'schema_migrations' order by 1, 2`,
    });
    const inDatabase = rows.map(
      (row) => `${row.table}.${row.column} ${row.type}${row.nullable ? '' : ' not null'}${row.hasDefault ? ' default' : ''}`,
    );
    const inCode = Object.values(schema).flatMap((table) =>
      Object.values(getTableColumns(table)).map((column) => {
        const type = column.getSQLType();
        return `${getTableName(table)}.${column.name} ${type}${column.notNull ? ' not null' : ''}${column.hasDefault ? ' default' : ''}`;
      }),
    );
    assert.deepEqual(inCode.sort(), inDatabase.sort());
  });

  it('B72 no trigger of ours exists, so none notifies', async () => {
    assert.deepEqual(await used.db.query({ text: 'select tgname from pg_trigger where not tgisinternal' }), []);
  });
});
