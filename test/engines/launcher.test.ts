import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isAlive } from '../../scripts/lib/lock.mjs';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const fixture = fileURLToPath(new URL('./fixtures/launched.ts', import.meta.url));

describe('the watch of the launcher', function () {
  this.timeout(60_000);
  const left: number[] = [];
  afterEach(() => {
    for (const pid of left.splice(0)) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  });
  after(removeScratchFolders);

  /** As npm does it: a process, its shell, the program. */
  async function launched(env: NodeJS.ProcessEnv): Promise<{ launcher: ChildProcess; pid: number; file: string }> {
    const file = join(scratchFolder(), 'said');
    const command = `"${process.execPath}" --import tsx "${fixture}" "${file}"; true`;
    const asNpm = `require('node:child_process').spawn('sh', ['-c', ${JSON.stringify(command)}], { stdio: 'inherit' })`;
    const launcher = spawn(process.execPath, ['-e', asNpm], { stdio: 'ignore', env: { ...process.env, ...env } });
    const pid = await eventually('the program', () => (existsSync(file) ? Number(readFileSync(file, 'utf8').split('\n')[0]) : undefined));
    left.push(pid);
    return { launcher, pid, file };
  }

  it('ends the program when npm is killed, though npm’s shell lives on', async () => {
    const { launcher, pid, file } = await launched({ npm_lifecycle_event: 'start' });
    launcher.kill('SIGKILL');
    await eventually('the end of the program', () => !isAlive(pid));
    assert.equal(readFileSync(file, 'utf8'), `${pid}\ngone\n`);
  });

  it('lets a program that a person started live on without its parent', async () => {
    const { launcher, pid, file } = await launched({ npm_lifecycle_event: undefined });
    launcher.kill('SIGKILL');
    // One that is watched has time to notice in this while.
    const watched = await launched({ npm_lifecycle_event: 'start' });
    watched.launcher.kill('SIGKILL');
    await eventually('the end of the watched program', () => !isAlive(watched.pid));
    assert.equal(isAlive(pid), true);
    assert.equal(readFileSync(file, 'utf8'), `${pid}\n`);
  });
});
