/** Runs on machines as the api starts and steers them, against a real Temporal server that no worker polls: the hours in which nobody answers. */
import assert from 'node:assert/strict';
import { createMetalWorkflows, isGone } from '../../api/metal-workflows.ts';
import type { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';

const machineId = 'steered-1';
const words = { actor: 'ann', reason: 'ticket 4711' };

describe('runs on machines without a worker', function () {
  this.timeout(60_000);
  let temporal: TestTemporal;
  const workflowId = workflowIds.machineRun(machineId, 'inspect');
  const handle = () => temporal.client.workflow.getHandle(workflowId);

  before(async () => {
    temporal = await sharedTemporal();
  });
  after(() =>
    handle()
      .terminate('the test is over')
      .catch(() => undefined),
  );

  it('M58 words that nobody answers wait as a signal, a second run of a kind is refused, and one whose workflow is gone is told apart', async () => {
    const runs = createMetalWorkflows(async () => temporal.client, { answerWithinMs: 1_000, queryWithinMs: 500 });
    const started = await runs.start('inspect', { machineId, ...words });
    assert.equal(started.workflowId, workflowId);
    await assert.rejects(runs.start('inspect', { machineId, ...words }), (error: ControlError) => {
      assert.deepEqual([error.code, error.details['reason']], ['INVALID_STATE', 'already-running']);
      return true;
    });
    assert.equal(await runs.status(workflowId), null);
    assert.equal(await runs.steer(workflowId, 'give-up', words), null);
    const { events } = await handle().fetchHistory();
    const signals = (events ?? []).flatMap(({ workflowExecutionSignaledEventAttributes: signal }) => signal?.signalName ?? []);
    assert.deepEqual(signals, ['giveUpSignal']);
    await handle().terminate('somebody takes it away');
    await assert.rejects(runs.steer(workflowId, 'give-up', words), (error: unknown) => isGone(error));
    assert.equal(await runs.status(workflowId), null);
  });
});
