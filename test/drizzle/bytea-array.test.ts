import assert from 'node:assert/strict';
import { byteaArray } from '../../drizzle/bytea-array.ts';
import { useDatabase } from '../harness/postgres.ts';

describe('many byte strings as one parameter', () => {
  const used = useDatabase();

  it('arrive as they are, in their order, whatever their lengths', async () => {
    const text = 'select value from unnest($1::bytea[]) with ordinality as u(value, place) order by place';
    for (const values of [[], [new Uint8Array()], [Buffer.from('a'), new Uint8Array(70_000).fill(255), new Uint8Array([0, 92, 34, 44])]]) {
      const rows = await used.db.query<{ value: Buffer }>({ name: 'bytea-array-test', text }, [byteaArray(values)]);
      assert.deepEqual(
        rows.map(({ value }) => new Uint8Array(value)),
        values.map((value) => new Uint8Array(value)),
      );
    }
  });
});
