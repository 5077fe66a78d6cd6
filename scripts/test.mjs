/**
 * Runs the tests, each suite in a process of its own: `npm test`, or `npm test -- <part of a path> …` for some files. The last
 * line is `N passed, N failed`; the exit code is 1 when anything failed.
 *
 * Two suites run side by side where there are two cores (`BC_TEST_LANES=1`: one): one lane begins with the quick ones, the other
 * with the whole stacks, which mostly wait. What a suite says is printed when it ends, so that two never mix. What failed is told
 * once more at the end: whoever keeps only the tail of a long log still learns why.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, relative, sep } from 'node:path';
import { runScript, SetupError } from './lib/failure.mjs';
import { filesUnder, projectRoot } from './lib/sources.mjs';

/**
 * Pure and quick first, whole stacks last. Both ends go on with what takes long: a folder that is not listed runs in between, where the two
 * lanes meet, and those are short, so that neither waits long for the other.
 */
const first = ['architecture', 'domain', 'proto', 'runtime', 'pki', 'docs', 'cli', 'activities', 'workflows', 'workers'];
const last = ['gateway', 'daemon', 'api', 'engines', 'faults', 'e2e'];
/** A suite that hangs is a failure, not a wait; the stories on whole stacks take the longest. */
const suiteWithinMs = (process.env.BC_TEST_NIGHTLY === '1' ? 60 : 20) * 60_000;

await runScript(async () => {
  const suites = suitesOf(selected(process.argv.slice(2)));
  const lanes = Math.min(suites.length, lanesOf(process.env.BC_TEST_LANES));
  const total = { passed: 0, failed: 0, reasons: [] };
  const lane = async (next) => {
    for (let suite = next(); suite !== undefined; suite = next()) {
      const counts = await runSuite(suite, { isAlone: lanes === 1 });
      total.passed += counts.passed;
      total.failed += counts.failed;
      total.reasons.push(...counts.reasons);
    }
  };
  // From both ends of one list, until they meet.
  await Promise.all([lane(() => suites.shift()), ...(lanes === 2 ? [lane(() => suites.pop())] : [])]);
  if (total.reasons.length > 0) process.stdout.write(`\n━━ what failed\n\n${total.reasons.join('\n\n')}\n`);
  process.stdout.write(`\n${total.passed} passed, ${total.failed} failed\n`);
  process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;
});

function lanesOf(wanted = '') {
  if (wanted === '') return availableParallelism() >= 2 ? 2 : 1;
  if (wanted === '1' || wanted === '2') return Number(wanted);
  throw new SetupError(`BC_TEST_LANES is "${wanted}"`, 'set it to 1 or 2, or leave it out', { exit: 2 });
}

function selected(filters) {
  const all = filesUnder(join(projectRoot, 'test')).filter((file) => file.endsWith('.test.ts'));
  const wanted = filters.filter((filter) => !filter.startsWith('-'));
  if (wanted.length === 0) return all;
  const files = all.filter((file) => wanted.some((part) => relative(projectRoot, file).includes(part)));
  if (files.length > 0) return files;
  throw new SetupError(
    `no test file has ${wanted.map((part) => `"${part}"`).join(' or ')} in its path`,
    'name a part of a path under test/, such as pki or gateway/session',
    { exit: 2 },
  );
}

/** One suite a folder under test/. */
function suitesOf(files) {
  const suites = new Map();
  for (const file of files) {
    const [top = '', rest] = relative(join(projectRoot, 'test'), file).split(sep);
    const name = rest === undefined ? top.replace(/\.test\.ts$/, '') : top;
    suites.set(name, [...(suites.get(name) ?? []), file]);
  }
  return [...suites].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b));
}

function rank(name) {
  if (first.includes(name)) return first.indexOf(name);
  return last.includes(name) ? 200 + last.indexOf(name) : 100;
}

async function runSuite([name, files], { isAlone }) {
  const heading = `\n━━ ${name} (${files.length} file${files.length === 1 ? '' : 's'})\n`;
  if (isAlone) process.stdout.write(heading);
  const folder = mkdtempSync(join(tmpdir(), 'bc-test-'));
  const countsFile = join(folder, 'counts.json');
  const began = performance.now();
  try {
    const mocha = join(projectRoot, 'node_modules', 'mocha', 'bin', 'mocha.js');
    const args = [
      mocha,
      '--reporter',
      join(projectRoot, 'scripts', 'mocha-reporter.cjs'),
      ...files.map((file) => relative(projectRoot, file)),
    ];
    const ended = await run(args, { env: { BC_TEST_COUNTS: countsFile }, isAlone });
    const told = existsSync(countsFile) ? JSON.parse(readFileSync(countsFile, 'utf8')) : null;
    const counts = { ...verdict(ended, told), reasons: (told?.failed ?? []).map(reasonOf) };
    if (counts.reasons.length < counts.failed) counts.reasons.push(`${name}${counts.note}\n${lastLines(ended.said)}`);
    const seconds = Math.round((performance.now() - began) / 1_000);
    process.stdout.write(isAlone ? '' : heading + ended.said);
    process.stdout.write(`━━ ${name}: ${counts.passed} passed, ${counts.failed} failed${counts.note} (${seconds} s)\n`);
    return counts;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One failed test: where it stands, and as much of its error as helps. */
function reasonOf({ title, file, error }) {
  return `✖ ${title}\n  ${file === undefined ? '' : relative(projectRoot, file)}\n${indented(error.split('\n').slice(0, 30))}`;
}

function lastLines(text) {
  return indented(text.trimEnd().split('\n').slice(-30));
}

function indented(lines) {
  return lines.map((line) => `  ${line}`).join('\n');
}

/** A suite that could not load, crashed or hung counts as one failure more. */
function verdict({ code, late }, counts) {
  const passed = counts?.passes ?? 0;
  const failures = counts?.failures ?? 0;
  if (late) return { passed, failed: failures + 1, note: ` (did not end within ${suiteWithinMs / 60_000} minutes)` };
  if (counts === null) return { passed, failed: 1, note: ` (could not run: exit code ${code})` };
  if (code !== 0 && failures === 0) return { passed, failed: 1, note: ` (all tests passed, but the process ended with exit code ${code})` };
  return { passed, failed: failures, note: counts.pending > 0 ? `, ${counts.pending} skipped` : '' };
}

function run(args, { env, isAlone }) {
  return new Promise((resolve) => {
    const stdio = isAlone ? 'inherit' : ['ignore', 'pipe', 'pipe'];
    const child = spawn(process.execPath, args, { cwd: projectRoot, stdio, env: { ...process.env, ...env } });
    const said = [];
    child.stdout?.on('data', (chunk) => said.push(chunk));
    child.stderr?.on('data', (chunk) => said.push(chunk));
    let late = false;
    const timer = setTimeout(() => ((late = true), child.kill('SIGKILL')), suiteWithinMs);
    const end = (code) => {
      clearTimeout(timer);
      resolve({ code: code ?? 1, late, said: Buffer.concat(said).toString() });
    };
    child.on('close', end);
    // What a killed suite had started may hold its pipes open: then its own end is the end.
    child.on('exit', (code) => setTimeout(end, 2_000, code).unref());
  });
}
