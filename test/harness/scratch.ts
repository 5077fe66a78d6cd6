/** Folders for tests: under the system's temporary folder, which the database's account can enter, and gone afterwards. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const made: string[] = [];

export function scratchFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'bc-scratch-'));
  made.push(folder);
  return folder;
}

export function removeScratchFolders(): void {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
}
