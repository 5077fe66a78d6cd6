/**
 * Compiles the sources to dist/: TypeScript, then what it leaves out (generated protobuf, SQL, the scripts that run engines),
 * then the workflow bundle that workers load. It is made aside and takes its place when it is whole; a build that fails leaves
 * the one before. The stamp of the sources is written last, so a build that was cut is no build.
 */
import { chmodSync, cpSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { SetupError } from './lib/failure.mjs';
import { runCommand } from './lib/run-command.mjs';
import { projectRoot, sourceStamp } from './lib/sources.mjs';

const dist = join(projectRoot, 'dist');
const stampFile = join(dist, '.stamp');

/** Copied as they are. */
const copies = ['proto/gen', 'drizzle/migrations', 'scripts/engines', 'scripts/lib'];

/** What package.json names under `bin`: runnable, for npx. */
const programs = ['cli/main.js', 'daemon/main.js'];

/** Whether dist/ was built from the sources as they are now. */
export const isBuilt = () => existsSync(stampFile) && readFileSync(stampFile, 'utf8') === sourceStamp();

/** @returns {Promise<string | null>} null when it worked, else what the tool that failed said */
export async function build() {
  const stamp = sourceStamp();
  const aside = join(projectRoot, '.cache', 'dist');
  rmSync(aside, { recursive: true, force: true });
  const tsc = join(projectRoot, 'node_modules', 'typescript', 'bin', 'tsc');
  const compiled = await runCommand(process.execPath, [tsc, '--project', 'tsconfig.build.json', '--outDir', aside], { cwd: projectRoot });
  if (compiled.code !== 0) return compiled.out || compiled.err;
  for (const path of copies) cpSync(join(projectRoot, path), join(aside, path), { recursive: true });
  for (const program of programs) chmodSync(join(aside, program), 0o755);
  rmSync(dist, { recursive: true, force: true });
  renameSync(aside, dist);
  // Its cache is by place, so it is made in the place where workers look for it.
  const bundled = await bundleWorkflows();
  if (bundled !== null) return bundled;
  writeFileSync(stampFile, stamp);
  return null;
}

// The bundle of the workflows, made once here instead of at the first start of a worker, which looks for it where it is kept.
async function bundleWorkflows() {
  const module = join(dist, 'workers', 'bundle.js');
  if (!existsSync(module)) return null;
  const script = `await (await import(${JSON.stringify(pathToFileURL(module).href)})).loadWorkflowBundle()`;
  const done = await runCommand(process.execPath, ['--input-type=module', '--eval', script], { cwd: projectRoot });
  return done.code === 0 ? null : done.err || done.out;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { runScript } = await import('./lib/failure.mjs');
  await runScript(async () => {
    const problem = await build();
    if (problem !== null) throw new SetupError(`the build failed:\n${problem}`, 'npm run check says the same in order');
  });
}
