/**
 * The credential of a host (XC-034): a file in the folder of this worker, read when it is used and held no longer. What begins as a private key
 * does is one, anything else a password. A file that others may read is refused, as ssh refuses it.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { hostCredentialFile } from '../../domain/enrolment/order.ts';
import { ControlError } from '../../domain/errors.ts';

export type HostCredential =
  | { readonly kind: 'key'; readonly privateKey: Buffer }
  | { readonly kind: 'password'; readonly password: string };

const longest = 64 * 1024;
const otherPeople = 0o077;

/** @throws INVALID_CONFIG naming the reference, never what is in it */
export async function readHostCredential(folder: string | null, reference: string): Promise<HostCredential> {
  const refuse = (why: string): ControlError =>
    new ControlError('INVALID_CONFIG', `credential ${reference}: ${why}`, {
      details: { reason: 'host-credential', hint: 'put it in the folder that BETTER_COMPUTE_HOST_CREDENTIALS names, mode 0600' },
    });
  const name = hostCredentialFile(reference);
  if (name === undefined) throw refuse('it is not file://<name>');
  if (folder === null) throw refuse('this worker has no folder of credentials');
  const path = join(folder, name);
  // Of what a link leads to: the folders of secrets that orchestrators mount are made of links.
  const found = await stat(path).catch(() => null);
  if (found?.isFile() !== true) throw refuse('there is no such file');
  if ((found.mode & otherPeople) !== 0) throw refuse('others than its owner may read it');
  if (found.size > longest) throw refuse('it is larger than 64 KiB');
  const file = await readFile(path).catch(() => null);
  if (file === null) throw refuse('it cannot be read');
  if (file.includes('PRIVATE KEY-----')) return { kind: 'key', privateKey: file };
  const password = file.toString('utf8').replace(/\r?\n$/, '');
  if (password === '' || /[\r\n\0]/.test(password)) throw refuse('it is neither a private key nor a password of one line');
  return { kind: 'password', password };
}
