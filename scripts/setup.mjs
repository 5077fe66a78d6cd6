/**
 * Makes a fresh checkout ready and costs nothing when it already is: `node scripts/setup.mjs --for start|test|check`.
 * Needs nothing but Node: this file and what it imports use no dependency. Talks on stderr; one set-up at a time.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, isBuilt } from './build.mjs';
import { ensureCounterparts, ensureTokenBinding } from './engines/counterparts.mjs';
import { ensureGoJudge } from './engines/go-judge.mjs';
import { ensurePythonJudges } from './engines/python-judges.mjs';
import { findTemporal } from './engines/temporal-binary.mjs';
import { runScript, SetupError } from './lib/failure.mjs';
import { waitForLock } from './lib/lock.mjs';
import { runCommand } from './lib/run-command.mjs';
import { projectRoot } from './lib/sources.mjs';

/** What each purpose needs, in order. */
const purposes = Object.freeze({
  start: [nodeModules, temporal, compiled],
  test: [nodeModules, counterparts, temporal, compiled],
  check: [nodeModules],
});

/** npm's own names that say how to reach a registry: they stay. Declared before the script runs. */
const keptNpmNames =
  /^npm_config_(registry|cafile|ca|proxy|https_proxy|noproxy|cache|userconfig|globalconfig|strict_ssl|prefer_offline|offline)$/i;

const say = (line) => process.stderr.write(`${line}\n`);

await runScript(async () => {
  const [flag, purpose = ''] = process.argv.slice(2);
  const steps = flag === '--for' && Object.hasOwn(purposes, purpose) ? purposes[purpose] : undefined;
  if (steps === undefined)
    throw new SetupError(`"${process.argv.slice(2).join(' ')}" names no purpose`, `use --for ${Object.keys(purposes).join(', --for ')}`, {
      exit: 2,
    });
  assertNode();
  const lock = await waitForLock(join(projectRoot, '.cache', 'setup.lock'), {
    timeoutMs: 15 * 60_000,
    onWait: (pid) => say(`another set-up is running (pid ${pid}); waiting for it …`),
  });
  if (lock.kind === 'held')
    throw new SetupError(
      `another set-up (pid ${lock.pid}) has been running for 15 minutes`,
      `look what it does, or end it: kill ${lock.pid}`,
    );
  try {
    for (const step of steps) await step();
  } finally {
    lock.release();
  }
});

function assertNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  throw new SetupError(
    `Node ${process.versions.node} is too old: 20.19 or newer is needed`,
    'install it from https://nodejs.org, then try again',
  );
}

/** `npm ci` when the lock file is not the one that was installed. Install scripts stay off: nothing here needs one. */
async function nodeModules() {
  const lockFile = readFileSync(join(projectRoot, 'package-lock.json'));
  const digest = createHash('sha256').update(lockFile).digest('hex');
  const mark = join(projectRoot, 'node_modules', '.better-compute-installed');
  if (existsSync(mark) && readFileSync(mark, 'utf8') === digest) return;
  say('installing the packages of package-lock.json …');
  // npm reads its own npm_config_* names; those of an outer `npm start` must not steer this one.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^npm_(config_|lifecycle|package_)/.test(name) || keptNpmNames.test(name)),
  );
  const done = await runCommand('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--include=dev'], {
    cwd: projectRoot,
    env,
    show: true,
  });
  if (done.code !== 0)
    throw new SetupError(
      `npm ci failed (exit code ${done.code})`,
      'the lines above say why; a registry that cannot be reached is the usual cause',
    );
  writeFileSync(mark, digest);
}

/** What tests compare us with. None of it is needed to run. */
async function counterparts() {
  await ensureCounterparts({ say });
  await ensureTokenBinding({ say });
  await ensureGoJudge({ say });
  await ensurePythonJudges({ say });
}

async function temporal() {
  if (process.env.TEMPORAL_ADDRESS) return;
  await findTemporal({ say });
}

/** A type error is for `npm run check`; here it only means that the sources run instead of the build. */
async function compiled() {
  if (isBuilt()) return;
  say('building …');
  const problem = await build();
  if (problem !== null) say(`the build failed, the sources run instead:\n${problem}`);
}
