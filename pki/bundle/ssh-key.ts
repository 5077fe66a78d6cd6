/** OpenSSH public key lines of the SSH authorities, as a bundle keeps them (KEY-005, KEY-040). */
import type { KeyObject } from 'node:crypto';
import { encodeSshKeyLine, parseSshCaLine, sshKeyOf } from '../ssh/index.ts';

/** `ssh-ed25519 <base64> <comment>` of an Ed25519 key. */
export const encodeSshPublicKey = (key: KeyObject, comment: string): string => encodeSshKeyLine(sshKeyOf(key), comment);

/**
 * Reads one line of an Ed25519 or ECDSA P-256 key. A second line would be a second trusted authority, so any control
 * character makes the text no key.
 *
 * @returns null when the text is not exactly one such line
 */
export function parseSshPublicKey(line: string): KeyObject | null {
  try {
    return parseSshCaLine(line).key;
  } catch {
    return null;
  }
}
