/**
 * Black-box scripts over the real program: each `$ better-compute …` of test/cli/scripts/*.txt runs as a process of its own
 * against a real API server; what follows is its standard output, `! ` before a line its standard error, `? n` its exit code.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { aCommand, aNode, createDeployment, now, type RunningApi, startApi } from '../api/support.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { createAuditKey, goodRotation, signAll } from '../pki/audit/support.ts';
import { envFor } from './support.ts';

const folder = new URL('./scripts/', import.meta.url).pathname;
const root = new URL('../../', import.meta.url).pathname;
const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

interface Step {
  readonly command: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

function parseScript(text: string): Step[] {
  return text
    .split(/^\$ /m)
    .slice(1)
    .map((block) => {
      const [command = '', ...lines] = block.trimEnd().split('\n');
      const kept = lines.filter((line) => !line.startsWith('#'));
      const of = (wanted: (line: string) => boolean): string =>
        kept
          .filter(wanted)
          .map((line) => `${line.replace(/^! /, '')}\n`)
          .join('');
      return {
        command,
        stdout: of((line) => !/^[!?] /.test(line)),
        stderr: of((line) => line.startsWith('! ')),
        exitCode: Number(kept.find((line) => line.startsWith('? '))?.slice(2) ?? 0),
      };
    });
}

/** Words as a shell splits them: blanks, except between double quotes. */
const words = (command: string): string[] => [...command.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2] ?? '');

const run = (command: string, env: NodeJS.ProcessEnv, cwd: string): Promise<Omit<Step, 'command'>> =>
  new Promise((resolve) => {
    const argv = words(command).slice(1);
    const child = spawn(process.execPath, ['--import', loader, join(root, 'cli/main.ts'), ...argv], {
      cwd,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk) => (stdout += String(chunk)));
    child.stderr.on('data', (chunk) => (stderr += String(chunk)));
    child.once('close', (code) => resolve({ stdout, stderr, exitCode: code ?? -1 }));
  });

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
        const seen = await run(command.replaceAll('$PIN', key.pin), env, cwd);
        const plain = { ...seen, stdout: seen.stdout.replace(/\d+ (?:h|min|s)\b.* ago/g, 'AGO') };
        assert.deepEqual(plain, expected, `$ ${command}`);
      }
    });
  }
});
