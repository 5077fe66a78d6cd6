/**
 * The stories of the keys' commands over the real program, word for word: test/cli/scripts/pki/*.txt. What differs in every run stands
 * under a name: SERIAL, PIN, DIGEST, KEY, DATE, HERE (the folder), VERSION.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { secret } from '../pki/support.ts';
import { parseScript, runScripted } from './script.ts';

const folder = new URL('./scripts/pki/', import.meta.url).pathname;

const masks: readonly [RegExp, string][] = [
  [/sha256\/[A-Za-z0-9+/]{43}=/g, 'PIN'],
  [/\b[0-9a-f]{64}\b/g, 'DIGEST'],
  [/\b[0-9a-f]{32,40}\b/g, 'SERIAL'],
  [/\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, 'DATE'],
  [/\bAAAA[A-Za-z0-9+/=]{40,}/g, 'KEY'],
  [/\bMFkw[A-Za-z0-9+/=]{40,}/g, 'KEY'],
  [/^execTicketKid: \S+$/gm, 'execTicketKid: KID'],
];
const masked = (text: string, here: string): string =>
  masks.reduce((rest, [shape, name]) => rest.replace(shape, name), text.replaceAll(here, 'HERE'));

describe('scripts of the keys, over the real program', function () {
  this.timeout(300_000);
  const used = useDatabase();
  after(removeScratchFolders);

  for (const name of readdirSync(folder)) {
    it(`CLI-007 CLI-056 CLI-057 ${name}`, async () => {
      const here = scratchFolder();
      const env = {
        PATH: process.env['PATH'],
        BETTER_COMPUTE_HOME: here,
        BETTER_COMPUTE_SECRET: secret,
        BETTER_COMPUTE_DATABASE_URL: used.url,
        BETTER_COMPUTE_ACTOR: 'ann',
        TEMPORAL_ADDRESS: '127.0.0.1:1',
      };
      for (const { command, ...expected } of parseScript(readFileSync(join(folder, name), 'utf8'))) {
        const { stdout, stderr, exitCode } = await runScripted(command, env, here);
        const seen = { stdout: masked(stdout, here), stderr: masked(stderr, here), exitCode };
        assert.deepEqual(seen, expected, `$ ${command}`);
      }
    });
  }
});
