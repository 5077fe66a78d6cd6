/** What each source file imports, read from its text: enough for the layers, and no compiler needed. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const projectRoot = fileURLToPath(new URL('../..', import.meta.url));

export interface Import {
  /** Path of the importing file, from the project's root. */
  readonly from: string;
  /** Path from the root for our own files, else the specifier: a package or node: module. */
  readonly to: string;
  readonly ours: boolean;
  readonly typeOnly: boolean;
}

const statement = /(?:^|\n)\s*(?:import|export)\s+(type\s+)?((?:[^'";]*?)\s+from\s+)?['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]\s*\)/g;

export function importsIn(text: string, from: string): Import[] {
  return [...text.matchAll(statement)].map((match) => {
    const specifier = match[3] ?? match[4] ?? '';
    const ours = specifier.startsWith('.');
    const names = match[2] ?? '';
    return {
      from,
      to: ours ? relative('.', join(dirname(from), specifier)) : specifier,
      ours,
      typeOnly: match[1] !== undefined || onlyTypes(names),
    };
  });
}

/** `import { type A, type B } from` brings no value either. */
function onlyTypes(clause: string): boolean {
  const braces = /^\s*\{([^}]*)\}\s+from\s+$/.exec(clause);
  const names = (braces?.[1] ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  return names.length > 0 && names.every((name) => name.startsWith('type '));
}

export function sourcesOf(folder: string): string[] {
  return readdirSync(join(projectRoot, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && /\.(ts|mjs)$/.test(entry.name) && !entry.name.endsWith('.d.ts') && !entry.name.endsWith('.d.mts'))
    .map((entry) => relative(projectRoot, join(entry.parentPath, entry.name)))
    .filter((path) => !path.startsWith('proto/gen/'))
    .sort();
}

export const importsOf = (path: string): Import[] => importsIn(readFileSync(join(projectRoot, path), 'utf8'), path);
