/** A command, and the commands of a workflow, among many: what an operator asks for again and again while it runs. */
import assert from 'node:assert/strict';
import type { Executor } from '../../drizzle/client.ts';
import { getCommands } from '../../services/operator-reads.ts';
import { useDatabase } from '../harness/postgres.ts';
import { planOf } from '../harness/query-plan.ts';
import { addNodes } from '../services/batch-support.ts';

const manyRows = 100_000;

describe('getCommands among 100,000 others', function () {
  this.timeout(120_000);
  const used = useDatabase();

  /** Rows as a queue leaves them; `id` is made of the number i. */
  const addRows = (id: string, rows: number, seqFrom: number): Promise<unknown> =>
    used.db.query(
      {
        text: `insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, deadline, state, finished_at)
               select 'n0', $2::bigint + i, ${id}, 'service.restart', 'control', '', '', '', '', '-infinity', now(), 2, now()
               from generate_series(1, $1::int) i`,
      },
      [rows, seqFrom],
    );

  before(async () => {
    await addNodes(used.db, ['n0']);
    await addRows(`'command/run-' || i || '/n0'`, manyRows / 2, 0);
    await addRows(`'machine/m' || i || '/provision/r' || i || '/power.1'`, manyRows / 2, manyRows);
    await addRows(`'command/mine/n' || i`, 3, 2 * manyRows);
    // Names that begin alike are another workflow's.
    await addRows(`'command/mine0/n' || i`, 3, 3 * manyRows);
    await addRows(`'machine/m1/inspect/mine/power.' || i`, 4, 4 * manyRows);
    await used.db.query({ text: 'analyze node_commands' });
  });

  for (const [what, id, found] of [
    ['one command', 'command/run-7/n0', 1],
    ['the commands of a workflow', 'command/mine', 3],
    ['the commands of a run on a machine', 'machine/m1/inspect/mine', 4],
  ] as const) {
    for (const tenants of ['all', ['default']] as const) {
      it(`reads ${what} by an index, for ${tenants === 'all' ? 'whoever may see all' : 'one tenant'}`, async () => {
        const asked: Parameters<Executor['query']>[] = [];
        const listening = {
          query: (...call: Parameters<Executor['query']>) => {
            asked.push(call);
            return used.db.query(...call);
          },
        } as Executor;
        assert.equal((await getCommands(listening, id, { limit: 1_000, tenants })).length, found);
        const [[statement, values = []] = []] = asked;
        assert.ok(statement !== undefined && asked.length === 1);
        const reads = (await planOf(used.db, statement, values as unknown[])).filter((node) => node['Relation Name'] === 'node_commands');
        assert.ok(reads.length > 0);
        for (const node of reads) {
          assert.match(node['Node Type'], /Index|Bitmap/, JSON.stringify(node));
          assert.equal(node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0), found, JSON.stringify(node));
        }
      });
    }
  }
});
