/** A command that is cut off before each of its steps on files: what was there is still there, whole, and the command runs again. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { day } from '../../../domain/time.ts';
import { openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { spkiOf } from '../../../pki/x509/index.ts';
import { stopAtStep } from '../../harness/stop-at-step.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { type Bench, createBench } from './harness.ts';

const root = new URL('../../../', import.meta.url).pathname;
const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const killer = new URL('../../harness/kill-at-step.mjs', import.meta.url).href;

const bundleIn = (folder: string): PkiBundle => openBundle(readFileSync(join(folder, 'pki.json'), 'utf8'), { secret });
const modeOf = (path: string): number => statSync(path).mode & 0o777;

function isPair(folder: string): boolean {
  if (!existsSync(join(folder, 'gateway.key')) || !existsSync(join(folder, 'gateway.crt'))) return false;
  const leaf = new X509Certificate(readFileSync(join(folder, 'gateway.crt')));
  return leaf.checkPrivateKey(createPrivateKey(readFileSync(join(folder, 'gateway.key'))));
}

/** The lock of a process that is gone: what a kill leaves behind, where the process that was cut off here lives on. */
function letTheHolderDie(folder: string): void {
  for (const name of ['pki.json.lock', 'tls/gateway.lock']) {
    const lock = join(folder, name);
    if (!existsSync(lock)) continue;
    const { pid } = spawnSync('true');
    writeFileSync(lock, JSON.stringify({ pid, host: hostname(), token: 'of a process that is gone' }));
  }
}

interface Story {
  readonly argv: (bench: Bench) => string[];
  /** Holds whenever the command was cut off, and after it ran again. */
  readonly holds: (folder: string) => void;
  /** What running again may say when the first run had done its work, or half of it that nobody may overwrite. */
  readonly done: RegExp;
}

describe('a pki command that is cut off between two steps', function () {
  this.timeout(60_000);
  let start: Bench;
  let before: PkiBundle;
  const benches: Bench[] = [];
  const benchFrom = (source: Bench | null): Bench => {
    const bench = createBench();
    benches.push(bench);
    bench.at(now + 300 * day);
    if (source !== null) cpSync(source.folder, bench.folder, { recursive: true });
    return bench;
  };
  const issue = (bench: Bench): string[] => ['pki', 'issue-gateway', '--san', 'gw.test', '--out', bench.path('tls')];
  const init = (bench: Bench): string[] => ['pki', 'init', '--trust-domain', trustDomain, '--offline-root', bench.path('root.key')];

  globalThis.before(async () => {
    start = createBench();
    benches.push(start);
    assert.equal((await start.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 0);
    assert.equal((await start.run(...issue(start))).exitCode, 0);
    before = bundleIn(start.folder);
  });
  after(() => {
    for (const bench of benches) bench.close();
  });

  async function cutEverywhere(source: Bench | null, { argv, holds, done }: Story): Promise<number> {
    const whole = benchFrom(source);
    const { answer, steps } = await stopAtStep(0, () => whole.run(...argv(whole)));
    assert.equal(answer?.exitCode, 0, answer?.err);
    holds(whole.folder);
    for (let at = 1; at <= steps; at++) {
      const bench = benchFrom(source);
      const cut = await stopAtStep(at, () => bench.run(...argv(bench)));
      assert.equal(cut.answer, undefined, `step ${at} was made`);
      holds(bench.folder);
      letTheHolderDie(bench.folder);
      bench.at(now + 301 * day);
      const again = await bench.run(...argv(bench));
      if (again.exitCode !== 0) assert.match(again.err, done, `after step ${at}`);
      holds(bench.folder);
    }
    return steps;
  }

  const initHolds = (folder: string): void => {
    const rootKey = join(folder, 'root.key');
    if (existsSync(rootKey)) assert.equal(modeOf(rootKey), 0o600);
    if (!existsSync(join(folder, 'pki.json'))) return;
    assert.equal(modeOf(join(folder, 'pki.json')), 0o600);
    assert.deepEqual(spkiOf(createPrivateKey(readFileSync(rootKey))), bundleIn(folder).rootCa.spki);
  };

  it('CLI-006 CLI-010 pki init: the bundle is there whole or not at all, and never without its root key', async () => {
    const steps = await cutEverywhere(null, { argv: init, holds: initHolds, done: /already exists: it is never overwritten/ });
    assert.ok(steps >= 12, `only ${steps} steps were seen`);
  });

  const renewHolds = (folder: string): void => {
    const after = bundleIn(folder);
    assert.equal(after.authenticated, true);
    assert.equal(modeOf(join(folder, 'pki.json')), 0o600);
    assert.equal(after.generation - before.generation, after.servingCa.certificates.length - 1, 'a renewal is one write-back');
    assert.ok(after.servingCa.certificates.some(({ serial }) => serial === before.servingCa.certificate.serial));
  };

  it('CLI-051 pki renew-ca: the bundle before or the one after, sealed, mode 0600', async () => {
    const argv = (): string[] => ['pki', 'renew-ca', '--ca', 'serving'];
    const steps = await cutEverywhere(start, { argv, holds: renewHolds, done: /^never/ });
    assert.ok(steps >= 10, `only ${steps} steps were seen`);
  });

  const pairHolds = (folder: string): void => {
    const tls = join(folder, 'tls');
    assert.ok(isPair(tls) || isPair(join(tls, 'gateway.previous')), readdirSync(tls).join());
    for (const name of readdirSync(tls).filter((file) => file.endsWith('.key'))) assert.equal(modeOf(join(tls, name)), 0o600);
  };

  it('CLI-026 pki issue-gateway: a key with its certificate is always there, in place or as gateway.previous', async () => {
    const steps = await cutEverywhere(start, { argv: issue, holds: pairHolds, done: /^never/ });
    assert.ok(steps >= 20, `only ${steps} steps were seen`);
  });

  const real: readonly [string, (bench: Bench) => string[], (folder: string) => void, number][] = [
    ['pki init', init, initHolds, 7],
    ['pki renew-ca', () => ['pki', 'renew-ca', '--ca', 'serving'], renewHolds, 7],
    ['pki issue-gateway', issue, pairHolds, 19],
  ];
  for (const [name, argv, holds, at] of real) {
    it(`CLI-026 CLI-051 the real program, ${name}, killed in the middle`, async () => {
      const bench = benchFrom(name === 'pki init' ? null : start);
      assert.equal(await killedAt(at, argv(bench), bench), 'SIGKILL');
      holds(bench.folder);
      bench.at(Date.now());
      assert.match((await bench.run(...argv(bench))).err, /^$|^next|^wrote|already exists/);
      holds(bench.folder);
      const left = readdirSync(bench.folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.tmp'));
      assert.deepEqual(left, [], 'what the killed one left half written is gone');
    });
  }
});

const killedAt = (at: number, argv: readonly string[], bench: Bench): Promise<string | null> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, ['--import', loader, '--import', killer, join(root, 'cli/main.ts'), ...argv], {
      env: { PATH: process.env['PATH'], ...bench.env, KILL_AT_STEP: String(at) },
      stdio: 'ignore',
    });
    child.once('close', (_code, signal) => resolve(signal));
  });
