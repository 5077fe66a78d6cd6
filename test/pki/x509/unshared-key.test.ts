/** Node 20 waits for itself when a generated key is read while the job that made it is collected: ours are read as copies. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const child = fileURLToPath(new URL('./unshared-key-child.ts', import.meta.url));

describe('reading a key that was just made', () => {
  it('ends, however the collector runs', async () => {
    // Killed as hung after a minute; it takes seconds. Reading the generated keys themselves hung.
    const args = ['--max-semi-space-size=1', '--import', 'tsx', child];
    const { stdout } = await run(process.execPath, args, { timeout: 60_000, killSignal: 'SIGKILL' });
    assert.equal(stdout, 'read all');
  }).timeout(90_000);
});
