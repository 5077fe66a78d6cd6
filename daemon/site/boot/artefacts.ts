/**
 * The files that are handed out: named in one folder, and only with the checksum that somebody vouches for.
 *
 * A file is opened first and judged by what was opened; its checksum is kept for as long as the file system says that it is the same
 * file, unchanged. Who may write the folder may change what machines boot, so the checksum comes from elsewhere: a signed command.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import { hasErrno } from '../../state/files.ts';
import { artefactName } from '../config.ts';

export interface BootArtefact {
  readonly name: string;
  /** Lower-case hex. */
  readonly sha256: string;
}

export interface OpenArtefact {
  readonly file: FileHandle;
  readonly sizeBytes: number;
  readonly sha256: string;
  /** False once somebody wrote to the file after it was judged. */
  isUnchanged(): Promise<boolean>;
}

export interface ArtefactFolder {
  /**
   * The file, when it is one of those that are vouched for. The caller closes it.
   *
   * @throws NOT_FOUND (`no-artefact`) when there is none of the name; CONFLICT (`artefact-differs`) when its bytes are others;
   *   UNAVAILABLE when it cannot be read
   */
  open(name: string, vouched: readonly string[]): Promise<OpenArtefact>;
  /** The whole file, unjudged: loaders, which the owner's configuration names. @throws NOT_FOUND, FRAME_TOO_LARGE */
  read(name: string, maxBytes: number): Promise<Buffer>;
}

export function openArtefactFolder(folder: string): ArtefactFolder {
  const digests = new Map<string, { readonly facts: string; readonly sha256: Promise<string> }>();
  const digestOf = (name: string, { file, facts }: { file: FileHandle; facts: string }): Promise<string> => {
    const known = digests.get(name);
    if (known?.facts === facts) return known.sha256;
    const sha256 = hashOf(file);
    digests.set(name, { facts, sha256 });
    // What could not be read is read anew the next time.
    sha256.catch(() => digests.get(name)?.sha256 === sha256 && digests.delete(name));
    return sha256;
  };
  return {
    async open(name, vouched) {
      const opened = await openFile(folder, name);
      try {
        const sha256 = await digestOf(name, opened);
        // Written to while it was read: what was hashed is not what is there.
        if ((await factsOf(opened.file)).facts !== opened.facts) throw changing(name);
        if (!vouched.includes(sha256)) throw differs(name, { sha256, vouched });
        return { ...opened, sha256, isUnchanged: async () => (await factsOf(opened.file)).facts === opened.facts };
      } catch (error) {
        await opened.file.close();
        throw error;
      }
    },
    async read(name, maxBytes) {
      const { file, sizeBytes } = await openFile(folder, name);
      try {
        if (sizeBytes > maxBytes)
          throw new ControlError('FRAME_TOO_LARGE', `${name} has ${sizeBytes} bytes, at most ${maxBytes}`, {
            details: { reason: 'artefact-size' },
          });
        return await file.readFile();
      } finally {
        await file.close();
      }
    },
  };
}

async function openFile(folder: string, name: string): Promise<{ file: FileHandle; facts: string; sizeBytes: number }> {
  if (!artefactName.test(name)) throw missing(name);
  let file: FileHandle;
  try {
    // A link would lead out of the folder; a pipe would keep the opener waiting.
    file = await open(join(folder, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (['ENOENT', 'ELOOP', 'ENXIO', 'ENOTDIR'].some((code) => hasErrno(cause, code))) throw missing(name, cause);
    throw new ControlError('UNAVAILABLE', `the artefact ${name} cannot be opened`, { cause, details: { reason: 'artefact-unreadable' } });
  }
  const { facts, sizeBytes, isFile } = await factsOf(file);
  if (isFile) return { file, facts, sizeBytes };
  await file.close();
  throw missing(name);
}

/** Two texts are equal while the same bytes are there, as far as the file system tells. */
async function factsOf(file: FileHandle): Promise<{ facts: string; sizeBytes: number; isFile: boolean }> {
  const { dev, ino, size, mtimeNs, ctimeNs, ...kind } = await file.stat({ bigint: true });
  return { facts: [dev, ino, size, mtimeNs, ctimeNs].join(':'), sizeBytes: Number(size), isFile: (kind.mode & 0o170000n) === 0o100000n };
}

async function hashOf(file: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  const piece = Buffer.allocUnsafe(1024 * 1024);
  for (let at = 0; ; ) {
    const { bytesRead } = await file.read(piece, 0, piece.length, at);
    if (bytesRead === 0) return hash.digest('hex');
    hash.update(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
}

const missing = (name: string, cause?: unknown): ControlError =>
  new ControlError('NOT_FOUND', `the folder of artefacts has no file "${name.replace(/[^\x21-\x7e]/g, '?').slice(0, 128)}"`, {
    cause,
    details: { reason: 'no-artefact', hint: 'put it there, or correct the name in the profile' },
  });

const changing = (name: string): ControlError =>
  new ControlError('UNAVAILABLE', `the artefact ${name} was written to while it was read`, { details: { reason: 'artefact-changing' } });

const differs = (name: string, { sha256, vouched }: { sha256: string; vouched: readonly string[] }): ControlError =>
  new ControlError(
    'CONFLICT',
    vouched.length === 0
      ? `nobody vouches for the artefact ${name}`
      : `the artefact ${name} has SHA-256 ${sha256}, and ${vouched.join(' or ')} is what is to be handed out`,
    { details: { reason: 'artefact-differs', name, sha256, hint: 'copy the file anew, or correct the checksum in the profile' } },
  );
