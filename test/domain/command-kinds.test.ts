import assert from 'node:assert/strict';
import { harmOf } from '../../domain/commands/harm.ts';
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
      ['daemon.upgrade', ['node', 'site'], 'power', false, 30],
      ['driver.invoke', ['node', 'site', 'ramdisk'], 'driver', true, 30],
      ['bmc.power', ['site'], 'bmc', true, 5],
      ['bmc.boot', ['site'], 'bmc', true, 5],
      ['bmc.rotate', ['site'], 'bmc', true, 5],
      ['bmc.inventory', ['site'], 'bmc', false, 2],
      ['site.httpProxy', ['site'], 'proxy', true, 2],
      ['boot.prepareRamdisk', ['site'], 'boot', false, 2],
      ['boot.cleanUp', ['site'], 'boot', false, 2],
      ['diag.disks', ['ramdisk'], 'control', false, 2],
      ['diag.dcgm', ['ramdisk'], 'bulk', false, 120],
      ['disk.wipe', ['ramdisk'], 'disk', true, 72 * 60],
      ['deploy.image', ['ramdisk'], 'disk', true, 120],
      ['boot.kexec', ['ramdisk'], 'power', true, 10],
    ]);
    assert.deepEqual(laneWindows, { control: 16, power: 1, bulk: 2, bmc: 256, boot: 256, proxy: 64, disk: 1, driver: 16 });
  });

  it('KIND-001 KIND-004 KIND-005 KIND-006 KIND-012 names for each kind a payload and a result that the protocol declares, and no two share one', () => {
    const files = { node: 'agent/v1/commands', ramdisk: 'agent/v1/metal', site: 'site/v1/site' } as const;
    const packages: Readonly<Record<string, string>> = { 'driver.invoke': 'driver/v1/driver' };
    const fileOf = (name: string): string | undefined => protocolRegistry.getMessage(name)?.file.name;
    for (const [kind, { roles, payload, result }] of rows) {
      const file = packages[kind] ?? files[roles[0] as keyof typeof files];
      assert.deepEqual([fileOf(payload), fileOf(result)], [`bettercompute/${file}`, `bettercompute/${file}`], kind);
    }
    const names = rows.flatMap(([, { payload, result }]) => [payload, result]);
    assert.equal(new Set(names).size, names.length, 'a payload says which kind it is for');
  });

  it('KIND-011 KIND-013 node.reboot is destructive and never repeated, inventory.refresh neither', () => {
    assert.deepEqual([commandKinds['node.reboot'].destructive, commandKinds['node.reboot'].idempotent], [true, false]);
    assert.deepEqual([commandKinds['inventory.refresh'].destructive, commandKinds['inventory.refresh'].idempotent], [false, true]);
  });

  it('KIND-010 KIND-016 what the daemon calls harmful (harm.ts) is what the table calls destructive', () => {
    for (const [kind, { destructive }] of rows) assert.equal(harmOf(kind, { method: 'POST' }) !== 'none', destructive, kind);
  });

  it('a name from Object.prototype is no kind', () => {
    assert.equal(findCommandKind('constructor'), undefined);
    assert.equal(findCommandKind('inventory.refresh')?.lane, 'control');
  });
});
