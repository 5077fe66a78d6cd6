/** A process under the supervisor of the stack: what ended comes back, also on a machine that is too busy to start it in the usual time. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Child, startChild } from '../../cli/stack/child-process.ts';
import { eventually } from '../harness/eventually.ts';

describe('a process of the stack', function () {
  this.timeout(120_000);
  let folder: string;
  let child: Child | undefined;
  const said: string[] = [];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bc-child-'));
    said.length = 0;
  });
  afterEach(async () => {
    await child?.stop();
    child = undefined;
    rmSync(folder, { recursive: true, force: true });
  });

  /** Ready at once when it is started first, and as many milliseconds later as it is told in every start after that. */
  const start = async (laterMs: number, readyWithinMs: number): Promise<Child> => {
    const script = join(folder, 'program.cjs');
    writeFileSync(
      script,
      `const fs = require('node:fs');
       const again = fs.existsSync(${JSON.stringify(join(folder, 'started'))});
       fs.writeFileSync(${JSON.stringify(join(folder, 'started'))}, '');
       process.stdin.on('end', () => process.exit(0)).resume();
       setTimeout(() => console.log('{"ready":true}'), again ? ${laterMs} : 0);`,
    );
    child = await startChild(
      { name: 'slow', entry: { args: [script] }, args: [], env: {}, logFile: join(folder, 'log') },
      { say: (line) => said.push(line), readyWithinMs },
    );
    return child;
  };
  const isBack = (before: number): Promise<boolean> =>
    eventually('it is back', () => said.some((line) => line.startsWith('slow is back')) && child?.pid() !== before, 60_000);

  it('is started again when it is killed', async () => {
    const { pid } = await start(0, 30_000);
    const before = pid();
    process.kill(before, 'SIGKILL');
    await isBack(before);
    assert.match(said[0] ?? '', /^slow ended by itself \(SIGKILL\); starting it again in 0\.5 s/);
  });

  it('comes back on a machine where its start takes longer than it is given at first, and says that it waits longer', async () => {
    const { pid } = await start(4_000, 3_000);
    const before = pid();
    process.kill(before, 'SIGKILL');
    await isBack(before);
    assert.ok(said.includes('slow was not ready within 3 s; the next try is given more'), said.join('\n'));
  });
});
