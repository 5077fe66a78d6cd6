/** What the batch commands write: JSON that no terminal can be tricked with, files that replace nothing by accident. */
import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { ControlError } from '../../domain/errors.ts';
import { showUnseen } from '../../domain/text/unseen.ts';
import type { CliIo } from '../io.ts';

const asEscapes = (character: string): string =>
  [...Array(character.length).keys()].map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');

/** JSON that reads back the same and shows everything that is in it (BAT-056). */
export const safeJson = (value: unknown): string => showUnseen(JSON.stringify(value, null, 2), asEscapes, { lines: true });

export const writeSafeJson = (io: Pick<CliIo, 'out'>, value: unknown): void => io.out(safeJson(value));

/**
 * Writes a new file.
 *
 * @throws INVALID_STATE when there is one of the name
 */
export function writeNew(path: string, text: string, mode = 0o644): void {
  let file: number;
  try {
    file = openSync(path, 'wx', mode);
  } catch (cause) {
    const exists = (cause as NodeJS.ErrnoException).code === 'EEXIST';
    throw new ControlError('INVALID_STATE', exists ? `${path} is there already` : `${path} cannot be written`, {
      details: { reason: exists ? 'file-exists' : 'not-writable', path, hint: 'name another file; this command overwrites none' },
      cause,
    });
  }
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
