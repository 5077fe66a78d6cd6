/** An approver that is a program: its key lies with a signer outside of api and workers, and a tier lets it approve small batches alone. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { readApproverPublicKey } from '../../cli/batch/approver-key.ts';
import { createDesk, type Desk, succeeds } from '../cli/batch/hostile-api.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNodes, createBatchOf, forceQuorum, quorumOfApprovers, rebootLeaf, three } from '../services/batch-support.ts';
import { trustDomain } from '../services/support.ts';
import { type BatchApi, operatorToken, startBatchApi } from './batch-api.ts';

const program = fileURLToPath(new URL('../runtime/fixtures/signer-program.mjs', import.meta.url));

describe('an approver that approves by itself', function () {
  this.timeout(30_000);
  const used = useDatabase({ max: 10 });
  let api: BatchApi;
  let desk: Desk;
  before(async () => {
    await addNodes(used.db, ['n0', 'n1']);
    api = await startBatchApi(used.db);
    desk = createDesk(null, Date.now);
    Object.assign(desk.env, {
      PATH: process.env['PATH'],
      BETTER_COMPUTE_API_URL: api.url,
      BETTER_COMPUTE_OPERATOR_TOKEN: operatorToken,
      BETTER_COMPUTE_SIGNER_COMMAND: program,
      SIGNER_KEY_FILE: desk.path('kept.pem'),
    });
  });
  after(async () => {
    desk.close();
    await api.close();
  });

  it('QUO-066 QUO-065 by batch approve with a key of a signer program: alone up to the size of its tier, beside a person above it', async () => {
    const key = 'external:auto-approver';
    await succeeds(desk.run('keygen', '--key', key, '--out', desk.path('auto')));
    const { kid, spki } = readApproverPublicKey(desk.path('auto.pub'));
    const auto = { kid, signer: { spki, sign: async () => assert.fail('its key is not here') } };
    const quorum = quorumOfApprovers({ approvers: [auto, ...three], tiers: [{ maxScopeSize: 1, threshold: 1 }] });
    await forceQuorum(used.db, quorum);
    const context = { quorum, trustDomain };
    const [small, large] = [
      await createBatchOf(used.db, [rebootLeaf('n0')], { context }),
      await createBatchOf(
        used.db,
        ['n0', 'n1'].map((id) => rebootLeaf(id)),
        { context },
      ),
    ];
    assert.deepEqual([small.required, large.required], [1, 2]);
    for (const { batchId } of [small, large]) await succeeds(desk.run('approve', batchId, '--key', key, '--yes', '--allow-unbound'));
    const states = await used.db.query<{ id: string; state: string }>({ text: 'select id, state from command_batches' });
    const stateOf = (batchId: string) => states.find(({ id }) => id === batchId)?.state;
    assert.deepEqual([stateOf(small.batchId), stateOf(large.batchId)], ['approved', 'pending']);
    const approvals = await used.db.query<{ kid: string }>({ text: 'select distinct kid from command_batch_approvals' });
    assert.deepEqual(approvals, [{ kid }]);
  });
});
