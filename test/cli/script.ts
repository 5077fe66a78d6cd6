/** Black-box scripts: a command line after `$ `, then its standard output, `! ` before a line of standard error, `? n` its exit code. */
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const root = new URL('../../', import.meta.url).pathname;
const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

export interface Step {
  readonly command: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

export function parseScript(text: string): Step[] {
  return text
    .split(/^\$ /m)
    .slice(1)
    .map((block) => {
      const [command = '', ...lines] = block.trimEnd().split('\n');
      const kept = lines.filter((line) => !line.startsWith('#'));
      const of = (wanted: (line: string) => boolean): string =>
        kept
          .filter(wanted)
          .map((line) => `${line.replace(/^! /, '')}\n`)
          .join('');
      return {
        command,
        stdout: of((line) => !/^[!?] /.test(line)),
        stderr: of((line) => line.startsWith('! ')),
        exitCode: Number(kept.find((line) => line.startsWith('? '))?.slice(2) ?? 0),
      };
    });
}

/** Words as a shell splits them: blanks, except between double quotes. */
const words = (command: string): string[] => [...command.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2] ?? '');

/** One command line as a process of its own. */
export const runScripted = (command: string, env: NodeJS.ProcessEnv, cwd: string): Promise<Omit<Step, 'command'>> =>
  new Promise((resolve) => {
    const argv = words(command).slice(1);
    const child = spawn(process.execPath, ['--import', loader, join(root, 'cli/main.ts'), ...argv], {
      cwd,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk) => (stdout += String(chunk)));
    child.stderr.on('data', (chunk) => (stderr += String(chunk)));
    child.once('close', (code) => resolve({ stdout, stderr, exitCode: code ?? -1 }));
  });
