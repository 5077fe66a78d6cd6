import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { isAlive } from '../../scripts/lib/lock.mjs';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const fixture = fileURLToPath(new URL('./fixtures/parent.mjs', import.meta.url));
const obedient =
  'process.on("SIGTERM", () => { console.log("asked to end"); process.exit(0); }); setInterval(() => {}, 1000); console.log(JSON.stringify(process.env));';
const deaf = 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000);';

type Parent = ChildProcessByStdio<Writable, Readable, null>;

const left: number[] = [];

async function keeping(script: string): Promise<{ parent: Parent; enginePid: number; log: string }> {
  const log = join(scratchFolder(), 'engine.log');
  const parent = spawn(process.execPath, [fixture, log, script], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, BETTER_COMPUTE_SECRET: 'not for engines' },
  });
  const [line] = (await once(parent.stdout, 'data')) as [Buffer];
  const enginePid = Number(line.toString());
  left.push(parent.pid ?? 0, enginePid);
  return { parent, enginePid, log };
}

const said = (log: string, text: string): Promise<string> =>
  eventually(`"${text}" in the log`, () => {
    const found = readFileSync(log, 'utf8');
    return found.includes(text) && found;
  });

describe('the keeper of engines', function () {
  this.timeout(30_000);
  // What a broken keeper leaves behind, the test does not.
  afterEach(() => {
    for (const pid of left.splice(0)) if (pid > 1 && isAlive(pid)) process.kill(pid, 'SIGKILL');
  });
  after(removeScratchFolders);

  it('ends the engine with its signal when the parent is killed', async () => {
    const { parent, enginePid, log } = await keeping(obedient);
    await said(log, 'PATH');
    parent.kill('SIGKILL');
    await eventually('the end of the engine', () => !isAlive(enginePid));
    await said(log, 'asked to end');
  });

  it('kills an engine that does not hear, after the grace', async () => {
    const { parent, enginePid } = await keeping(deaf);
    parent.kill('SIGKILL');
    await eventually('the end of the engine', () => !isAlive(enginePid));
  });

  it('stops when asked, and the parent waits for it', async () => {
    const { parent, enginePid, log } = await keeping(obedient);
    await said(log, 'PATH');
    parent.stdin.write('stop\n');
    await once(parent, 'close');
    assert.equal(isAlive(enginePid), false);
  });

  it('gives the engine nothing of our environment', async () => {
    const { parent, enginePid, log } = await keeping(obedient);
    const text = await said(log, 'PATH');
    assert.ok(!text.includes('not for engines'), text);
    parent.kill('SIGKILL');
    await eventually('the end of the engine', () => !isAlive(enginePid));
  });
});
