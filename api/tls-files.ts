/** The internal listener's leaf, followed by content: a renewed pair is taken without a restart, a pair that does not match is not. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { ControlError } from '../domain/errors.ts';
import { minute } from '../domain/time.ts';

export interface TlsPair {
  readonly key: string;
  readonly cert: string;
}

/** @throws INVALID_CONFIG when a file is missing or the key is not the certificate's */
export async function readTlsPair(files: TlsPair): Promise<TlsPair> {
  try {
    const [key, cert] = await Promise.all([readFile(files.key, 'utf8'), readFile(files.cert, 'utf8')]);
    createSecureContext({ key, cert });
    return { key, cert };
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `the internal certificate ${files.cert} and its key cannot be used`, {
      details: { reason: 'tls-files', hint: 'better-compute start writes them; they live for at most 30 days' },
      cause,
    });
  }
}

const hashOf = ({ key, cert }: TlsPair): string => createHash('sha256').update(key).update('\0').update(cert).digest('hex');

/** Looks every minute; hands over each changed pair that works, reports each that does not once (H-12). */
export function followTlsPair(
  files: TlsPair,
  first: TlsPair,
  on: { change: (pair: TlsPair) => void; problem: (error: unknown) => void },
): { close(): void } {
  let current = hashOf(first);
  let lastProblem = '';
  const look = async (): Promise<void> => {
    try {
      const pair = await readTlsPair(files);
      lastProblem = '';
      if (hashOf(pair) === current) return;
      current = hashOf(pair);
      on.change(pair);
    } catch (error) {
      if (String(error) !== lastProblem) on.problem(error);
      lastProblem = String(error);
    }
  };
  const timer = setInterval(() => void look(), minute);
  timer.unref();
  return { close: () => clearInterval(timer) };
}
