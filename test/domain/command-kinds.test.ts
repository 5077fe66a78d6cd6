import assert from 'node:assert/strict';
import { type CommandKindSpec, commandKinds, findCommandKind, laneWindows } from '../../domain/commands/kinds.ts';
import { minute } from '../../domain/time.ts';
import { protocolRegistry } from '../../proto/index.ts';

const rows = Object.entries<CommandKindSpec>(commandKinds);

describe('the table of command kinds', () => {
  it('KIND-003 KIND-015 is exactly this: who runs what, in which lane, whether it destroys, for how long', () => {
    const table = rows.map(([kind, { roles, lane, destructive, timeoutMs }]) => [kind, roles, lane, destructive, timeoutMs / minute]);
    assert.deepEqual(table, [
      ['inventory.refresh', ['node', 'site'], 'control', false, 1],
      ['node.reboot', ['node'], 'power', true, 15],
      ['service.restart', ['node'], 'control', false, 5],
      ['logs.collect', ['node', 'site'], 'bulk', false, 10],
    ]);
    assert.deepEqual(laneWindows, { control: 16, power: 1, bulk: 2 });
  });

  it('KIND-001 KIND-012 names for each kind a payload and a result that commands.proto declares, and no two share one', () => {
    const declared = (name: string): boolean => protocolRegistry.getMessage(name)?.file.name === 'bettercompute/agent/v1/commands';
    for (const [kind, { payload, result }] of rows) {
      assert.ok(declared(payload), `${kind}: ${payload}`);
      assert.ok(declared(result), `${kind}: ${result}`);
    }
    const names = rows.flatMap(([, { payload, result }]) => [payload, result]);
    assert.equal(new Set(names).size, names.length, 'a payload says which kind it is for');
  });

  it('KIND-011 KIND-013 node.reboot is destructive and never repeated, inventory.refresh neither', () => {
    assert.deepEqual([commandKinds['node.reboot'].destructive, commandKinds['node.reboot'].idempotent], [true, false]);
    assert.deepEqual([commandKinds['inventory.refresh'].destructive, commandKinds['inventory.refresh'].idempotent], [false, true]);
  });

  it('a name from Object.prototype is no kind', () => {
    assert.equal(findCommandKind('constructor'), undefined);
    assert.equal(findCommandKind('inventory.refresh')?.lane, 'control');
  });
});
