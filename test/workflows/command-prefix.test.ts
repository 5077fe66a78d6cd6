import assert from 'node:assert/strict';
import { isCommandId, isNodeId, maxCommandIdLength, maxCommandPrefixLength, maxNodeIdLength } from '../../domain/commands/ids.ts';
import { commandPrefixOf } from '../../workflows/run-command/state.ts';

describe('the ids of commands', () => {
  const runId = '0192aaaa-bbbb-7ccc-8ddd-eeeeffff0000';

  it('are printable ASCII of 1 to 128 characters, with a node id of 1 to 63', () => {
    assert.deepEqual(['a', 'x'.repeat(128), '', 'x'.repeat(129), 'a b', 'ä'].map(isCommandId), [true, true, false, false, false, false]);
    assert.deepEqual(['A-1._', 'n'.repeat(63), '', 'n'.repeat(64), 'a/b'].map(isNodeId), [true, true, false, false, false]);
  });

  it('begin with the workflow and the run; a name that leaves no room for a node is told apart by the whole run id', () => {
    assert.equal(commandPrefixOf({ workflowId: 'run-command/1', runId }), 'run-command/1/0192aaaa');
    const longest = 'w'.repeat(maxCommandPrefixLength - 9);
    assert.equal(commandPrefixOf({ workflowId: longest, runId }), `${longest}/0192aaaa`);
    const other = runId.replace('eeee', 'eeef');
    for (const workflowId of [`${longest}w`, 'w'.repeat(1_000), 'früh am Tag']) {
      const prefix = commandPrefixOf({ workflowId, runId });
      assert.ok(prefix.endsWith(`/${runId}`), prefix);
      assert.ok(isCommandId(`${prefix}/${'n'.repeat(maxNodeIdLength)}`), prefix);
      assert.notEqual(prefix, commandPrefixOf({ workflowId, runId: other }), 'another run has other ids');
    }
    assert.equal(commandPrefixOf({ workflowId: 'w'.repeat(1_000), runId }).length + 1 + maxNodeIdLength, maxCommandIdLength);
  });
});
