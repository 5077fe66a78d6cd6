/**
 * Black-box scripts over the real program: each `$ better-compute …` of test/cli/scripts/*.txt runs as a process of its own
 * against a real API server; what follows is its standard output, `! ` before a line its standard error, `? n` its exit code.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { aCommand, aNode, createDeployment, now, type RunningApi, startApi } from '../api/support.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { createAuditKey, goodRotation, signAll } from '../pki/audit/support.ts';
import { parseScript, runScripted } from './script.ts';
import { envFor } from './support.ts';

const folder = new URL('./scripts/', import.meta.url).pathname;

describe('scripts over the real program', function () {
  this.timeout(120_000);
  const key = createAuditKey();
  let api: RunningApi;
  let cwd: string;

  before(async () => {
    const deployment = createDeployment();
    deployment.nodes = [
      aNode('node-a', { session: null, connected: false }),
      aNode('node-b', { state: 'revoked', session: null, connected: false }),
    ];
    deployment.commands = [aCommand('command/demo/node-a')];
    deployment.absent = [{ id: 'node-a', seenAt: null, createdAt: now, openCommands: 0 }];
    deployment.auditKey = key.spki;
    deployment.evidence.set('rotation-1', await signAll(key, goodRotation));
    api = await startApi(deployment);
    cwd = scratchFolder();
  });
  after(async () => {
    await api.close();
    removeScratchFolders();
  });

  for (const name of readdirSync(folder).filter((file) => file.endsWith('.txt'))) {
    it(name, async () => {
      const env = { PATH: process.env['PATH'], ...envFor(api.url), BETTER_COMPUTE_ACTOR: 'ann', TEMPORAL_ADDRESS: '127.0.0.1:1' };
      for (const { command, ...expected } of parseScript(readFileSync(join(folder, name), 'utf8'))) {
        const seen = await runScripted(command.replaceAll('$PIN', key.pin), env, cwd);
        const plain = { ...seen, stdout: withoutTimes(seen.stdout) };
        assert.deepEqual(plain, expected, `$ ${command}`);
      }
    });
  }
});

/** How long ago depends on the day, and with it how wide its column is. */
function withoutTimes(stdout: string): string {
  return stdout
    .replace(/\d+ (?:h|min|s)\b.* ago( +)?/g, (_, spaces?: string) => (spaces === undefined ? 'AGO' : 'AGO   '))
    .replace(/SEEN +/g, 'SEEN  ');
}
