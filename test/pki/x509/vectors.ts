/** Public test vectors beside the project; a suite that needs them is skipped by name where they are absent. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const root = resolve(process.cwd(), '../shared/vectors');

export const hasVectors = (...path: string[]): boolean => existsSync(join(root, ...path));
export const readVectors = (...path: string[]): Buffer => readFileSync(join(root, ...path));
export const readJsonVectors = (...path: string[]): unknown => JSON.parse(readVectors(...path).toString('utf8'));
export const listVectors = (folder: string, ending: RegExp): string[] =>
  hasVectors(folder) ? readdirSync(join(root, folder)).filter((name) => ending.test(name)) : [];

/** describe, or describe.skip with the reason in the title. */
export const describeVectors = (title: string, path: readonly string[], body: () => void): void => {
  if (hasVectors(...path)) describe(title, body);
  // The body may read them at once, so it is not entered.
  else
    describe.skip(`${title} (skipped: no vectors at ../shared/vectors/${path.join('/')})`, () => it('needs the vectors', () => undefined));
};
