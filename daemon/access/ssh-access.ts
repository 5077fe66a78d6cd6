/**
 * The access section on this machine: files for sshd, in a folder that the owner of the machine names (`sshFolder` in
 * config.json) and includes in the configuration of sshd by one line.
 *
 *   revoked_keys   RevokedKeys: certificates that were taken back (SSH-006); an empty list when there are none
 *   user_ca        TrustedUserCAKeys: the break-glass authority and nobody else (SSH-007)
 *   sshd.conf      names both, and gives each account the one principal `<account>@<node>` (SSH-004)
 *
 * Invariants: both values are parsed before anything is written, so a list that does not read to its end replaces nothing; each file
 * is replaced as a whole; the list is written before what refers to it, because sshd lets nobody in when it is missing.
 *
 * Threat model: the section comes under a signature of the deployment, so its author is trusted to name the authority; he cannot
 * name two, nor write another line into a file of sshd. The folder must be one that only the owner of the daemon writes to.
 */
import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { createKrl, encodeSshKeyLine, parseKrl, parseSshCaLine } from '../../pki/ssh/index.ts';
import type { AccessSpec } from '../../proto/index.ts';
import { readIfPresent, writeDurably } from '../state/files.ts';

export interface AccessFiles {
  /** Makes the files say what the section says. @throws MALFORMED, UNSUPPORTED, INVALID_CONFIG, INVALID_STATE; faults of the file system */
  apply(access: AccessSpec): Promise<void>;
}

const maxFileBytes = 2 * 1024 * 1024;
const othersMayWrite = 0o022;

export function sshAccessFiles({ folder, nodeId }: { readonly folder: string; readonly nodeId: string }): AccessFiles {
  const paths = { krl: join(folder, 'revoked_keys'), ca: join(folder, 'user_ca'), config: join(folder, 'sshd.conf') };
  const config = [
    `# Written by bcd for node ${nodeId}: who may log in by certificate. It follows the desired state; changes are overwritten.`,
    `RevokedKeys ${paths.krl}`,
    `TrustedUserCAKeys ${paths.ca}`,
    `AuthorizedPrincipalsCommand /bin/echo %u@${nodeId}`,
    'AuthorizedPrincipalsCommandUser nobody',
    '',
  ].join('\n');
  return {
    async apply({ sshKrl, sshUserCa }) {
      const krl = sshKrl.length === 0 ? emptyKrl() : sshKrl;
      parseKrl(krl);
      const ca = sshUserCa === '' ? '' : caLine(sshUserCa);
      await openSshFolder(folder);
      await replace(paths.krl, Buffer.from(krl));
      await replace(paths.ca, Buffer.from(ca));
      await replace(paths.config, Buffer.from(config));
    },
  };
}

const emptyKrl = (): Uint8Array => createKrl({ version: 0n, generatedAt: 0, comment: '', certificates: [], keys: [] }).bytes;

/** Built from the parsed key: nothing but one key can come out. */
function caLine(line: string): string {
  const { comment, ...key } = parseSshCaLine(line, 'the break-glass authority in the desired state');
  return `${encodeSshKeyLine(key, comment)}\n`;
}

/** Nothing is written when it is there already: sshd would read the file in vain. */
async function replace(path: string, content: Buffer): Promise<void> {
  const present = await readIfPresent(path, maxFileBytes);
  if (present === undefined || !present.equals(content)) await writeDurably(path, content, { mode: 0o644 });
}

async function openSshFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o755 });
  const { mode } = await stat(folder);
  if ((mode & othersMayWrite) === 0) return;
  throw new ControlError('INVALID_STATE', `others may write to ${folder}, and put an authority of theirs there: chmod go-w ${folder}`, {
    details: { reason: 'folder-open', path: folder },
  });
}
