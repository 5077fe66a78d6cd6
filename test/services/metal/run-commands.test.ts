/** The commands of a run among many: read by an index of the commands of runs, whatever else is in the log. */
import assert from 'node:assert/strict';
import { planRun } from '../../../services/metal/index.ts';
import { getRun, runCommands } from '../../../services/metal/run-views.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { planOf } from '../../harness/query-plan.ts';
import { addSite, availableMachine, commandIdOf, runOf } from './support.ts';

const manyRows = 100_000;

describe('the commands of a run', function () {
  this.timeout(120_000);
  const used = useDatabase();

  /** Rows as a queue leaves them; `id` is made of the number i. */
  const addRows = (id: string, rows: number, seqFrom: number): Promise<unknown> =>
    used.db.query(
      {
        text: `insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, deadline, state, finished_at)
               select 'agent-a', $2::bigint + i, ${id}, 'bmc.power', 'bmc', '', '', '', '', '-infinity', now(), 2, now()
               from generate_series(1, $1::int) i`,
      },
      [rows, seqFrom],
    );

  it('are one indexed read with 100,000 others beside them, of other work and of other runs of the same machine', async () => {
    await addSite(used.db);
    await availableMachine(used.db, 'm1');
    const plan = await planRun(used.db, runOf('m1', 'provision'));
    await addRows(`'command/run-' || i || '/x'`, manyRows / 2, 0);
    await addRows(`'machine/m' || i || '/provision/r' || i || '/power.1'`, manyRows / 2 - 10, manyRows);
    await addRows(`'machine/m1/provision/another' || i || '/power.1'`, 10, 2 * manyRows);
    // Names that begin alike are other runs'.
    await addRows(`'${commandIdOf(plan, '').slice(0, -1)}0/power.' || i`, 3, 3 * manyRows);
    await addRows(`'${commandIdOf(plan, 'power.')}' || i`, 4, 4 * manyRows);
    await used.db.query({ text: 'analyze node_commands' });
    const { commands } = await getRun(used.db, plan.runId, 'all');
    assert.deepEqual(
      commands.map(({ id }) => id).toSorted((a, b) => a.localeCompare(b)),
      [1, 2, 3, 4].map((n) => commandIdOf(plan, `power.${n}`)),
    );
    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      const nodes = await used.db.transaction(async (tx) => {
        await tx.query({ text: `set local plan_cache_mode = ${mode}` });
        return planOf(tx, { name: `explain-${mode}`, text: runCommands.text }, [commandIdOf(plan, '').slice(0, -1), 500]);
      });
      const reads = nodes.filter((node) => node['Relation Name'] === 'node_commands' || node['Index Name'] === 'node_commands_of_runs');
      assert.ok(reads.length > 0);
      for (const node of reads) {
        assert.match(node['Node Type'], /Index|Bitmap/, `${mode}: ${JSON.stringify(node)}`);
        assert.equal(node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0), 4, `${mode}: ${JSON.stringify(node)}`);
      }
      assert.ok(
        nodes.some((node) => node['Index Name'] === 'node_commands_of_runs'),
        mode,
      );
    }
  });
});
