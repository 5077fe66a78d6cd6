/** The project's folders, and a stamp that changes whenever a source file does. */
import { createHash } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout. In dist/ these scripts are copies, two levels deeper. */
export const projectRoot = (() => {
  const here = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
  return here.endsWith('/dist') ? dirname(here) : here;
})();

export const sourceFolders = [
  'domain',
  'proto',
  'pki',
  'drizzle',
  'services',
  'activities',
  'workflows',
  'workers',
  'gateway',
  'api',
  'daemon',
  'cli',
  'runtime',
  'scripts',
];
const sourceFiles = ['temporal.config.ts', 'tsconfig.json', 'package.json', 'package-lock.json'];

/** Every file under a folder, sorted, without following links.
 * @param {string} folder @returns {string[]} */
export function filesUnder(folder) {
  const found = [];
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) found.push(...filesUnder(path));
    else if (entry.isFile()) found.push(path);
  }
  return found.sort();
}

/** Changes with any source's name, size or time of change. */
export function sourceStamp(root = projectRoot, folders = sourceFolders) {
  const hash = createHash('sha256');
  const files = [
    ...folders.flatMap((folder) => safely(() => filesUnder(join(root, folder)))),
    ...sourceFiles.map((file) => join(root, file)),
  ];
  for (const file of files) {
    const stat = statSync(file, { throwIfNoEntry: false });
    if (stat !== undefined) hash.update(`${relative(root, file)}\0${stat.size}\0${stat.mtimeMs}\n`);
  }
  return hash.digest('hex');
}

function safely(list) {
  try {
    return list();
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
}
