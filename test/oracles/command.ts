/** Commands of others, a few at a time, with their files in a folder of the test's own. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encodePem } from '../../pki/x509/index.ts';
import { scratchFolder } from '../harness/scratch.ts';

export interface Ran {
  readonly code: number;
  readonly out: string;
}

const answersWithinMs = 30_000;
const atOnce = 4;

/** Code 127 when there is no such command. Times are in UTC, messages in English. */
export function runTool(command: string, args: readonly string[]): Promise<Ran> {
  const options = { timeout: answersWithinMs, env: { ...process.env, TZ: 'UTC', LC_ALL: 'C' } };
  return new Promise((resolve) => {
    const child = execFile(command, args, options, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : error.code === 'ENOENT' ? 127 : 1;
      resolve({ code, out: stdout + stderr });
    });
    child.stdin?.on('error', () => undefined);
    child.stdin?.end();
  });
}

/** Answers in order. */
export async function inTurn<Item, Answer>(items: readonly Item[], ask: (item: Item) => Promise<Answer>): Promise<Answer[]> {
  const answers: Answer[] = [];
  for (let i = 0; i < items.length; i += atOnce) answers.push(...(await Promise.all(items.slice(i, i + atOnce).map(ask))));
  return answers;
}

export interface Folder {
  /** Writes a file under a name that was not used before, and answers its path. */
  file(content: string): string;
  /** A path for somebody else to write. */
  path(): string;
}

export function newFolder(): Folder {
  const folder = scratchFolder();
  let count = 0;
  const path = (): string => join(folder, `${(count += 1)}.pem`);
  return {
    path,
    file(content) {
      const written = path();
      writeFileSync(written, content);
      return written;
    },
  };
}

export const pemOf = (certificates: readonly Uint8Array[]): string => certificates.map((der) => encodePem('CERTIFICATE', der)).join('');

/** The last line that says something. */
export const lastLine = (text: string): string => text.trim().split('\n').at(-1) ?? '';
