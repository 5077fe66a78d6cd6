/**
 * `npm run -s conformance -- <set>`: cases on standard input, answers on standard output and nothing else there. `--reasons` adds
 * to each refusal its reason and message, for people.
 */
import { once } from 'node:events';
import { ControlError } from '../../domain/errors.ts';
import { toExit } from '../exit.ts';
import { runConformance } from './run.ts';

const readArguments = (words: readonly string[]): { set: string; withReasons: boolean } => {
  const [set = '', ...rest] = words.filter((word) => word !== '--reasons');
  if (rest.length > 0 || set.startsWith('-'))
    throw new ControlError('INVALID_INPUT', `one set is named, not ${JSON.stringify(words.join(' ').slice(0, 200))}`, {
      details: { reason: 'arguments', hint: 'npm run -s conformance -- <set> [--reasons] < cases' },
    });
  return { set, withReasons: words.includes('--reasons') };
};

// Whoever reads may stop early (`| head`): that is no fault of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

try {
  await runConformance(readArguments(process.argv.slice(2)), {
    input: process.stdin,
    write: async (text) => {
      if (!process.stdout.write(text)) await once(process.stdout, 'drain');
    },
    now: Date.now,
  });
} catch (error) {
  const { lines, exitCode } = toExit(error);
  process.stderr.write(`${lines.join('\n')}\n`);
  process.exitCode = exitCode;
}
