import assert from 'node:assert/strict';
import { type StuckItem, stuckWorkflow } from '../../api/stuck.ts';
import { stuckRun } from '../../api/stuck-runs.ts';

const item: StuckItem = { kind: 'workflow', subject: 'machine/gpu-0117/provision', since: 5, waitsFor: 'booting: agent-1', help: 'look' };
const said = {
  machineId: 'gpu-0117',
  bmc: '10.7.0.17:443',
  phase: 'booting',
  step: 'boot',
  attempt: 2,
  waitsFor: 'agent-1 to finish bmc.power',
  last: { commandId: 'c', state: 'failed', message: 'UNAVAILABLE: the controller answers 504 (request 88)', at: 3 },
  next: 'better-compute machine override gpu-0117 --step boot --reason <why>',
};

describe('a run on a machine that waits', () => {
  it('M24 names the controller, the step, the last answer in the controller’s own words, and the next command', () => {
    assert.deepEqual(stuckRun(item, said), {
      ...item,
      waitsFor:
        'controller 10.7.0.17:443: boot (attempt 2); waits for agent-1 to finish bmc.power; last answer failed: UNAVAILABLE: the controller answers 504 (request 88)',
      help: 'better-compute machine override gpu-0117 --step boot --reason <why>',
    });
  });

  it('leaves out what is not there, and any other workflow as it is', () => {
    assert.deepEqual(stuckRun(item, { ...said, bmc: null, step: '', attempt: 1, waitsFor: '', last: null, next: '' }), {
      ...item,
      waitsFor: 'booting; booting: agent-1',
    });
    assert.equal(stuckRun(item, null), item);
    assert.equal(stuckRun(item, { since: 1, phase: 'waiting-fleet' }), item);
    const odd = stuckRun(item, { ...said, bmc: 7, last: { state: {}, message: [] }, next: 9, attempt: 'many' });
    assert.deepEqual([odd.waitsFor, odd.help], ['boot; waits for agent-1 to finish bmc.power', 'look']);
  });

  it('says what helps without a worker too: from the id of the workflow', () => {
    const facts = { since: 5, phase: 'booting', waitingOn: ['agent-1'], deadline: null, behind: null, problems: [], retrying: [] };
    for (const type of ['provisionMachine', 'retireMachine', 'inspectMachine', 'rotateBmcCredentials']) {
      const found = stuckWorkflow({ ...facts, type, workflowId: 'machine/gpu-0117/x' });
      assert.equal(
        found?.help,
        'better-compute machine show gpu-0117 --timeline; or end it: better-compute machine cancel gpu-0117 --reason <why>',
      );
    }
  });
});
