/** How a process of ours is run: compiled when we are, from its source otherwise. */
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface Entry {
  /** Arguments of node, the program's file last. */
  readonly args: readonly string[];
}

const root = fileURLToPath(new URL('../..', import.meta.url));
const compiled = extname(fileURLToPath(import.meta.url)) === '.js';

/**
 * @param name path of the program from the project's root, without its ending: api/main
 * @param nodeFlags what node itself is told
 */
export const entryOf = (name: string, nodeFlags: readonly string[] = []): Entry =>
  compiled
    ? { args: [...nodeFlags, '--enable-source-maps', join(root, `${name}.js`)] }
    : { args: [...nodeFlags, '--import', import.meta.resolve('tsx'), join(root, `${name}.ts`)] };
