/**
 * What judges us in Python and is no package of Debian's (test/oracles/python/requirements.txt), put into .cache once for each state of
 * that list, beside every Python's own packages and never among them. The set-up of the tests may fetch it; the tests only look.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../lib/run-command.mjs';
import { projectRoot } from '../lib/sources.mjs';

const list = join(projectRoot, 'test', 'oracles', 'python', 'requirements.txt');
const fetchWithinMs = 3 * 60_000;

/**
 * @param {{ fetch: boolean, say?: (line: string) => void }} options `fetch: false` reaches no registry
 * @returns {Promise<{ path: string } | { why: string }>} a folder for PYTHONPATH
 */
export async function findPythonJudges({ fetch, say = () => undefined }) {
  const version = await runCommand('python3', ['--version'], { timeoutMs: 30_000 });
  if (version.code !== 0) return { why: 'python3 is not installed' };
  const hash = createHash('sha256').update(version.out).update(readFileSync(list)).digest('hex').slice(0, 16);
  const path = join(projectRoot, '.cache', 'judges', `python-${hash}`);
  if (existsSync(path)) return { path };
  if (!fetch) return { why: 'its packages are not in .cache: node scripts/setup.mjs --for test fetches them' };
  say('fetching the judges in Python …');
  mkdirSync(join(projectRoot, '.cache', 'judges'), { recursive: true });
  // Complete or not there.
  const unfinished = `${path}.${process.pid}`;
  try {
    const args = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--target', unfinished, '--requirement', list];
    const done = await runCommand('python3', args, { timeoutMs: fetchWithinMs });
    if (done.code !== 0) return { why: done.code === 124 ? 'not fetched within 3 minutes' : (done.err.trim().split('\n').at(-1) ?? '') };
    renameSync(unfinished, path);
    return { path };
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
}

/** @param {{ say: (line: string) => void }} options */
export async function ensurePythonJudges({ say }) {
  const found = await findPythonJudges({ fetch: true, say });
  if ('why' in found) say(`no sushy-emulator and no client in Python (${found.why}); their tests are skipped by name`);
}
