/**
 * The Go program that judges us in the tests (test/oracles/go: crypto/x509, go-spiffe, go-jose, zlint), built into .cache once for
 * each state of its sources. The set-up of the tests may fetch its modules; the tests themselves build only from what is there.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { runCommand } from '../lib/run-command.mjs';
import { filesUnder, projectRoot } from '../lib/sources.mjs';

const source = join(projectRoot, 'test', 'oracles', 'go');
const fetchWithinMs = 2 * 60_000;
const buildWithinMs = 5 * 60_000;

function binaryPath() {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch}\n`);
  for (const file of filesUnder(source)) hash.update(`${relative(source, file)}\0`).update(readFileSync(file));
  return join(projectRoot, '.cache', 'judges', `go-${hash.digest('hex').slice(0, 16)}`);
}

/**
 * @param {{ fetch: boolean, say?: (line: string) => void }} options `fetch: false` reaches no registry
 * @returns {Promise<{ path: string } | { why: string }>}
 */
export async function findGoJudge({ fetch, say = () => undefined }) {
  const path = binaryPath();
  if (existsSync(path)) return { path };
  const online = { ...process.env, CGO_ENABLED: '0', GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' };
  if ((await runCommand('go', ['version'], { env: online })).code !== 0) return { why: 'go is not installed' };
  say('building the judge in Go …');
  if (fetch) {
    const fetched = await runCommand('go', ['mod', 'download'], { cwd: source, env: online, timeoutMs: fetchWithinMs });
    if (fetched.code !== 0) return { why: fetched.code === 124 ? 'modules not fetched within 2 minutes' : lastLine(fetched.err) };
  }
  const env = { ...online, GOPROXY: 'off' };
  const folder = join(projectRoot, '.cache', 'judges');
  mkdirSync(folder, { recursive: true });
  // Complete or not there: two test runs may build at once.
  const unfinished = `${path}.${process.pid}`;
  try {
    const args = ['build', '-trimpath', '-buildvcs=false', '-o', unfinished, '.'];
    const done = await runCommand('go', args, { cwd: source, env, timeoutMs: buildWithinMs });
    if (done.code !== 0) return { why: done.code === 124 ? 'not built within 5 minutes' : lastLine(done.err) };
    renameSync(unfinished, path);
    return { path };
  } finally {
    rmSync(unfinished, { force: true });
  }
}

const lastLine = (text) => text.trim().split('\n').at(-1) ?? 'no reason given';

/** @param {{ say: (line: string) => void }} options */
export async function ensureGoJudge({ say }) {
  const found = await findGoJudge({ fetch: true, say });
  if ('why' in found) say(`no judge in Go (${found.why}); its tests are skipped by name`);
}
