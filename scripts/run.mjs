/**
 * Runs an entry of this project: the build when it is that of the sources, else the sources themselves.
 *
 *   node scripts/run.mjs cli/main start --demonstration
 *
 * In this process, so that signals and the end of the parent reach the program without a process in between.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { isBuilt } from './build.mjs';
import { projectRoot } from './lib/sources.mjs';

const [entry = '', ...args] = process.argv.slice(2);
const compiled = join(projectRoot, 'dist', `${entry}.js`);
const file = existsSync(compiled) && isBuilt() ? compiled : join(projectRoot, `${entry}.ts`);
if (!existsSync(file)) {
  process.stderr.write(`error: there is no ${entry} in this project\nhint: name an entry without its ending, such as cli/main\n`);
  process.exit(2);
}
process.argv = [process.argv[0] ?? 'node', file, ...args];
if (file.endsWith('.ts')) {
  if (!existsSync(join(projectRoot, 'node_modules', 'tsx'))) {
    process.stderr.write('error: the packages of this project are not installed\nhint: node scripts/setup.mjs --for start, or npm start\n');
    process.exit(1);
  }
  const { register } = await import('tsx/esm/api');
  register();
}
await import(pathToFileURL(file).href);
