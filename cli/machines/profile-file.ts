/** Profiles as files on the operator's host: read and judged there, before anything is asked of anybody. */
import type { Profile } from '../../domain/metal/profile.ts';
import { parseProfileText } from '../../services/metal/profile-text.ts';
import { readTextFile } from './text-file.ts';

/** @throws NOT_FOUND; INVALID_INPUT with every problem, by line and field */
export function readProfileFile(path: string): Profile {
  return parseProfileText(readTextFile(path), path);
}
