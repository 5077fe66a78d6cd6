/** Files that the ssh commands read: each named in what is said about it. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import type { PkiBundle, SshAuthority } from '../../../pki/bundle/index.ts';

/** null when there is none. @throws INVALID_INPUT when it cannot be read, or has more than `maxBytes` */
export async function findFile(path: string, maxBytes: number): Promise<Uint8Array | null> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(resolve(path));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    throw new ControlError('INVALID_INPUT', `${path} cannot be read (${code ?? 'unknown fault'})`, {
      details: { reason: 'not-readable', path },
      cause,
    });
  }
  if (bytes.length <= maxBytes) return bytes;
  throw new ControlError('INVALID_INPUT', `${path} has more than ${maxBytes} bytes`, { details: { reason: 'too-large', path } });
}

/** The one line of a public key or certificate file. @throws NOT_FOUND, INVALID_INPUT */
export async function readLineFile(path: string): Promise<string> {
  const bytes = await findFile(path, 65_536);
  if (bytes === null)
    throw new ControlError('NOT_FOUND', `there is no file ${path}`, {
      details: { reason: 'no-file', path, hint: 'name a file such as ~/.ssh/id_ed25519.pub' },
    });
  const text = Buffer.from(bytes).toString('utf8');
  if (text.includes('PRIVATE KEY'))
    throw new ControlError('INVALID_INPUT', `${path} holds a private key`, {
      details: { reason: 'private-key', path, hint: 'name the public half, the file that ends in .pub' },
    });
  return text.replace(/\r?\n$/, '');
}

/** Puts the file's name before what is wrong with its content; the code stays. */
export function within<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    throw new ControlError(error.code, `${path}: ${error.message}`, { details: { ...error.details, path }, cause: error });
  }
}

/** @throws INVALID_STATE for a bundle made before there was one */
export function sshAuthorityOf(bundle: PkiBundle, name: 'sshCa' | 'sandboxSshCa'): SshAuthority {
  const authority = bundle[name];
  if (authority !== undefined) return authority;
  const hint =
    name === 'sandboxSshCa' ? 'add it: better-compute pki add-sandbox-ca' : 'it was made before there was one; a new bundle has it';
  throw new ControlError('INVALID_STATE', `the key bundle has no ${name}`, { details: { reason: 'no-ssh-ca', key: name, hint } });
}
