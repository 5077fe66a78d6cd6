import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { driver } from '../../proto/index.ts';
import { pluginEntries } from '../../scripts/ramdisk/plugins.mjs';
import { writePlugin } from '../harness/plugins.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { boot, stageRamdisk } from './stage.ts';

describe('plugins of a ramdisk', () => {
  after(removeScratchFolders);
  const log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
  const folderOfPlugins = (): string => {
    const folder = join(scratchFolder(), 'plugins');
    mkdirSync(folder);
    return folder;
  };

  it('KIND-008 M34 driver.invoke runs the plugins that the ramdisk was built with, for its own run alone', async () => {
    const folder = folderOfPlugins();
    const { manifestSha256 } = writePlugin(folder, { script: 'echo volts' });
    const { run } = await stageRamdisk({ plugins: { folder, log } });
    const call = { plugin: 'psu', manifestSha256, method: 'read', harmless: true };
    const end = await run('driver.invoke', { ...call, runId: boot.runId });
    assert.equal(end.kind, 'succeeded');
    const { output } = create(driver.DriverInvokeResultSchema, end.kind === 'succeeded' ? (end.value as never) : {});
    assert.equal(Buffer.from(output).toString(), 'volts\n');
    for (const runId of ['', 'another-run'])
      await assert.rejects(run('driver.invoke', { ...call, runId }), /the command is of run ".*", this boot belongs to run "a1b2c3d4e5f6"/);
  });

  it('KIND-008 one that was built without any does not announce it, and answers UNSUPPORTED', async () => {
    const { run, handler } = await stageRamdisk();
    assert.equal(handler('driver.invoke').isOffered, false);
    assert.equal(handler('disk.wipe').isOffered, undefined);
    await assert.rejects(run('driver.invoke', { runId: boot.runId }), /this machine hosts no plugins/);
  });

  it('its archive has them where bcd looks, the program to be run, everything else to be read, and no links', () => {
    const folder = folderOfPlugins();
    const { executable } = writePlugin(folder, { script: 'cat' });
    const entries = pluginEntries(folder).map(({ path, mode }) => `${path} ${mode.toString(8)}`);
    assert.deepEqual(entries.toSorted(), [
      'usr/lib/better-compute/plugins/psu/manifest.json 100644',
      'usr/lib/better-compute/plugins/psu/plugin 100755',
    ]);
    symlinkSync(executable, join(folder, 'psu', 'link'));
    assert.throws(() => pluginEntries(folder), /link is no regular file/);
    assert.throws(() => pluginEntries(folderOfPlugins()), /there is no plugin/);
  });
});
