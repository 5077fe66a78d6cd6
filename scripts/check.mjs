/**
 * The gate: every rule about the sources that a machine can hold, each a step named by what it holds. All steps run, so one
 * look shows everything that is wrong.
 */
import { join } from 'node:path';
import { runCommand } from './lib/run-command.mjs';
import { projectRoot } from './lib/sources.mjs';

const bin = (name) => join(projectRoot, 'node_modules', '.bin', name);
const script = (name, ...args) => [process.execPath, join(projectRoot, 'scripts', name), ...args];

/** What must hold → the command that fails when it does not.
 * @type {readonly [rule: string, commandLine: string[]][]} */
const steps = Object.freeze([
  ['every file is formatted, imports sorted, names kebab-case, exports named (biome)', [bin('biome'), 'ci', '--colors=off', '.']],
  [
    'no promise is left alone, no switch misses a case, sizes hold (oxlint with types)',
    [bin('oxlint'), '--type-aware', '--deny-warnings', '.'],
  ],
  ['every type is right (tsc)', [bin('tsc'), '--noEmit']],
  ['nothing is written that nobody uses (knip)', [bin('knip'), '--no-progress']],
  ['the protocol follows its rules (buf lint)', [bin('buf'), 'lint']],
  ['the protocol breaks no daemon in the field (buf breaking)', [bin('buf'), 'breaking', '--against', 'proto/baseline.binpb']],
  ['generated code is what the .proto files generate', script('proto-gen.mjs', '--check')],
  ['the reference pages are what the code generates', [process.execPath, '--import', 'tsx', 'scripts/docs-gen.ts', '--check']],
  ['the page of commands is what their tree generates', [process.execPath, '--import', 'tsx', 'scripts/cli-docs.ts', '--check']],
  [
    'layers import only what they may',
    [process.execPath, join(projectRoot, 'node_modules', 'mocha', 'bin', 'mocha.js'), 'test/architecture.test.ts'],
  ],
]);

const help = `usage: node scripts/check.mjs

Runs every rule below, and says which are broken; exit code 1 when one is. It takes no flags.

${steps.map(([rule]) => `  ${rule}`).join('\n')}
`;
const [word] = process.argv.slice(2);
if (word !== undefined) {
  const isAsked = word === '--help' || word === '-h';
  (isAsked ? process.stdout : process.stderr).write(isAsked ? help : `error: check takes no argument, and was given ${word}\n\n${help}`);
  process.exit(isAsked ? 0 : 2);
}

let failed = 0;
for (const [rule, commandLine] of steps) {
  const [command = '', ...args] = commandLine;
  const begun = Date.now();
  const env = { ...process.env, NO_COLOR: '1', PATH: `${join(projectRoot, 'node_modules', '.bin')}:${process.env.PATH ?? ''}` };
  const { code, out, err } = await runCommand(command, args, { cwd: projectRoot, env, timeoutMs: 5 * 60_000 });
  const seconds = ((Date.now() - begun) / 1000).toFixed(1);
  process.stdout.write(`${code === 0 ? 'holds ' : 'BROKEN'}  ${rule} (${seconds} s)\n`);
  if (code === 0) continue;
  failed += 1;
  process.stdout.write(`${(out + err).trimEnd().replace(/^/gm, '        ')}\n`);
}
process.stdout.write(failed === 0 ? `\nall ${steps.length} rules hold\n` : `\n${failed} of ${steps.length} rules are broken\n`);
process.exitCode = failed === 0 ? 0 : 1;
