/** How a process of ours is run: compiled when we are, from its source otherwise. */
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface Entry {
  /** Arguments of node, the program's file last. */
  readonly args: readonly string[];
}

const root = fileURLToPath(new URL('../..', import.meta.url));
const compiled = extname(fileURLToPath(import.meta.url)) === '.js';

/** @param name path of the program from the project's root, without its ending: api/main */
export const entryOf = (name: string): Entry =>
  compiled
    ? { args: ['--enable-source-maps', join(root, `${name}.js`)] }
    : { args: ['--import', import.meta.resolve('tsx'), join(root, `${name}.ts`)] };
