import { readFileSync, statSync } from 'node:fs';
import { ControlError } from '../../domain/errors.ts';

const largest = 8 * 2 ** 20;

/** @throws NOT_FOUND for what cannot be read; INVALID_INPUT for what is too large, or no UTF-8 */
export function readTextFile(path: string): string {
  const bytes = read(path);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new ControlError('INVALID_INPUT', `${path} is no text in UTF-8`, { details: { reason: 'no-text', path }, cause });
  }
}

function read(path: string): Uint8Array {
  try {
    const { size } = statSync(path);
    if (size <= largest) return readFileSync(path);
    throw new ControlError('INVALID_INPUT', `${path} has ${size} bytes, at most ${largest} are read`, {
      details: { reason: 'too-large', path },
    });
  } catch (cause) {
    if (cause instanceof ControlError) throw cause;
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, {
      details: { reason: 'no-file', path, hint: 'name a file that is there and that you may read' },
      cause,
    });
  }
}
