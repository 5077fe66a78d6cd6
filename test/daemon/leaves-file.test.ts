import assert from 'node:assert/strict';
import { appendFile, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { leavesPath, openLeavesFile } from '../../daemon/quorum/leaves-file.ts';
import type { UsedLeaves } from '../../daemon/quorum/used-leaves.ts';
import { type CrashHook, neverCrash } from '../../daemon/state/crash-points.ts';
import { hour } from '../../domain/time.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { stopAtStep } from '../harness/stop-at-step.ts';

const now = Date.UTC(2026, 0, 2);

describe('the file of used leaves', () => {
  let folder: string;
  let path: string;
  beforeEach(() => {
    folder = scratchFolder();
    path = leavesPath(folder);
  });
  after(removeScratchFolders);

  const entry = (n: number, notAfterMs = now + hour) => ({
    leaf: n.toString(16).padStart(64, '0'),
    commandId: `c-${n}`,
    digest: 'd'.repeat(64),
    notAfterMs,
  });
  const open = (crash: CrashHook = neverCrash): Promise<UsedLeaves> => openLeavesFile(folder, { crash });
  const text = (): Promise<string> => readFile(path, 'utf8');
  async function use(leaves: UsedLeaves, ...numbers: number[]): Promise<void> {
    for (const n of numbers) {
      leaves.take(entry(n));
      await leaves.save();
    }
  }
  const held = async (...numbers: number[]): Promise<boolean[]> => {
    const leaves = await open();
    return numbers.map((n) => leaves.find(entry(n).leaf)?.commandId === `c-${n}`);
  };

  it('DMN-016 one more leaf is one more line of the same file, whoever opened it; what is saved already is not written again', async () => {
    await use(await open(), 1, 2);
    const [before, { ino }] = [await text(), await stat(path)];
    const again = await open();
    await use(again, 3);
    await again.save();
    const after = await text();
    assert.ok(after.startsWith(before));
    assert.deepEqual(after.slice(before.length), `${JSON.stringify(entry(3))}\n`);
    assert.deepEqual([(await stat(path)).ino, (await stat(path)).mode & 0o777], [ino, 0o600]);
    assert.deepEqual(await held(1, 2, 3, 4), [true, true, true, false]);
  });

  it('commands that are admitted together share a write', async () => {
    let writes = 0;
    const leaves = await open((point) => void (writes += point === 'before-claim' ? 1 : 0));
    for (let n = 1; n <= 20; n += 1) leaves.take(entry(n));
    await Promise.all(Array.from({ length: 20 }, () => leaves.save()));
    assert.equal(writes, 1);
    assert.equal((await open()).size, 20);
  });

  it('forgetting leaves the file with what is kept, and no longer than that', async () => {
    const leaves = await open();
    leaves.take(entry(1, now));
    await use(leaves, 2);
    await leaves.prune(now + 1);
    await use(leaves, 3);
    assert.deepEqual(
      (await text()).trimEnd().split('\n').slice(1),
      [entry(2), entry(3)].map((one) => JSON.stringify(one)),
    );
  });

  it('a last line that a crash cut short is passed over, and is gone with the next leaf; one that is whole but for its end counts', async () => {
    await use(await open(), 1, 2);
    const whole = await text();
    for (const cut of [1, 20, 100]) {
      await writeFile(path, whole.slice(0, -cut));
      const leaves = await open();
      assert.deepEqual([leaves.unreadable, leaves.size], [null, cut === 1 ? 2 : 1], `${cut} bytes less`);
      await use(leaves, 3);
      assert.equal((await text()).split('\n').length, cut === 1 ? 5 : 4);
      assert.deepEqual(await held(1, 2, 3), [true, cut === 1, true]);
    }
    await writeFile(path, `${whole}\0\0\0\0`);
    assert.deepEqual([(await open()).unreadable, (await open()).size], [null, 2], 'blocks that were reserved and not written');
  });

  it('any other damage makes batches wait, and the file stays as it is', async () => {
    await use(await open(), 1, 2);
    const whole = await text();
    const lines = whole.split('\n');
    const damages: [what: string, text: string, why: RegExp][] = [
      ['a line in between', whole.replace('c-1"', 'c-1'), /line 2 does not read back/],
      ['an ended last line', whole.replace('c-2"', 'c-2'), /line 3 does not read back/],
      ['an empty line', `${whole}\n`, /line 4 does not read back/],
      ['a leaf that is none', whole.replace(entry(1).leaf, 'x'), /line 2 does not read back/],
      ['a field more', whole.replace('{"leaf"', '{"free":true,"leaf"'), /line 2 does not read back/],
      ['no first line', lines.slice(1).join('\n'), /it is not JSON/],
      ['nothing', '', /it is empty/],
    ];
    for (const [what, content, why] of damages) {
      await writeFile(path, content);
      const leaves = await open();
      assert.match(leaves.unreadable ?? '', why, what);
      assert.match(leaves.unreadable ?? '', /batch-leaves\.json is damaged: .*; it was left as it is/, what);
      assert.equal(leaves.take(entry(9)), false, what);
      await leaves.save();
      assert.equal(await text(), content, what);
    }
  });

  it('is written anew when it is not as it was left, and after a write that nobody knows the end of', async () => {
    const leaves = await open();
    await use(leaves, 1, 2);
    await truncate(path, 60);
    await use(leaves, 3);
    assert.deepEqual(await held(1, 2, 3), [true, true, true]);
    await appendFile(path, 'garbage');
    await use(leaves, 4);
    assert.deepEqual(await held(1, 2, 3, 4), [true, true, true, true]);
    let isBroken = false;
    const unsure = await open((point) => {
      if (isBroken && point === 'claim-unsynced') throw new Error('the disk does not answer');
    });
    isBroken = true;
    unsure.take(entry(5));
    await assert.rejects(unsure.save(), /the disk does not answer/);
    await unsure.save();
    assert.deepEqual(await held(1, 2, 3, 4, 5), [true, true, true, true, true]);
    assert.equal((await text()).split('\n').length, 7, 'each once');
  });

  it('reads what an older daemon wrote as a whole, and goes on in lines', async () => {
    await writeFile(path, JSON.stringify({ format: 'better-compute/batch-leaves/1', leaves: [entry(1)] }));
    const leaves = await open();
    assert.equal(leaves.size, 1);
    await use(leaves, 2);
    assert.deepEqual(await held(1, 2), [true, true]);
    assert.equal((await text()).split('\n').length, 4);
    await writeFile(path, JSON.stringify({ format: 'better-compute/batch-leaves/1', leaves: [{ ...entry(1), leaf: 'x' }] }));
    assert.match((await open()).unreadable ?? '', /damaged: .*leaves\[0\]\.leaf/s);
  });

  it('a power cut at any step of an append loses that leaf or nothing, and never one that was saved before', async () => {
    const work = async (): Promise<void> => {
      await use(await open(), 2);
    };
    const begin = async (): Promise<void> => {
      folder = scratchFolder();
      path = leavesPath(folder);
      await use(await open(), 1);
    };
    await begin();
    const { steps } = await stopAtStep(0, work);
    assert.ok(steps >= 3, `${steps} steps`);
    for (let at = 1; at <= steps; at += 1) {
      await begin();
      await stopAtStep(at, work);
      const leaves = await open();
      assert.deepEqual([leaves.unreadable, leaves.find(entry(1).leaf)?.commandId], [null, 'c-1'], `step ${at}`);
    }
  });
});
