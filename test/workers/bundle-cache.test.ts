/** What is kept of old workflow bundles, and what is taken away. */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hour, minute } from '../../domain/time.ts';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import { pruneBundles } from '../../workers/bundle-cache.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const now = Date.UTC(2030, 0, 1);
const nameOf = (n: number): string => `${n.toString(16).padStart(32, '0')}.js`;

function put(folder: string, name: string, at: number): void {
  writeFileSync(join(folder, name), '//');
  utimesSync(join(folder, name), at / 1_000, at / 1_000);
}

describe('the cache of workflow bundles', function () {
  this.timeout(60_000);
  afterEach(removeScratchFolders);

  it('keeps the newest eight, what is younger than an hour, and whatever is not its own', () => {
    const folder = scratchFolder();
    for (let n = 0; n < 12; n += 1) put(folder, nameOf(n), now - (n + 2) * hour);
    put(folder, `${nameOf(99)}.4711`, now - 2 * hour);
    put(folder, `${nameOf(98)}.4712`, now - minute);
    put(folder, 'notes.txt', now - 99 * hour);
    pruneBundles(folder, now);
    assert.deepEqual(
      readdirSync(folder).sort(),
      [...Array.from({ length: 8 }, (_, n) => nameOf(n)), `${nameOf(98)}.4712`, 'notes.txt'].sort(),
    );
    const starting = Array.from({ length: 20 }, (_, n) => nameOf(20 + n));
    for (const name of starting) put(folder, name, now - minute);
    pruneBundles(folder, now);
    const left = readdirSync(folder);
    assert.ok(
      starting.every((name) => left.includes(name)),
      'a worker may be starting with each of these',
    );
  });

  it('does nothing where there is no folder', () => pruneBundles(join(scratchFolder(), 'none'), now));

  it('a start prunes, and what it uses counts as new', async () => {
    const cacheFolder = scratchFolder();
    const folder = join(cacheFolder, 'workflow-bundles');
    mkdirSync(folder);
    for (let n = 0; n < 12; n += 1) put(folder, nameOf(n), Date.now() - (n + 2) * hour);
    const workflowsPath = fileURLToPath(new URL('../../workflows/reconcile-commands/workflow.ts', import.meta.url));
    const first = (await loadWorkflowBundle({ cacheFolder, workflowsPath })) as { codePath: string };
    assert.equal(readdirSync(folder).length, 8);
    utimesSync(first.codePath, 1, 1);
    assert.deepEqual(await loadWorkflowBundle({ cacheFolder, workflowsPath }), first);
    assert.ok(statSync(first.codePath).mtimeMs > Date.now() - hour);
  });
});
