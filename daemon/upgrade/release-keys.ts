/** The release keys that a machine's owner pins: in its configuration, and in the file that `daemon install-script --release-key` writes. */
import { ControlError } from '../../domain/errors.ts';
import { parsePem } from '../../pki/bundle/pem.ts';
import { parseP256Spki } from '../../pki/x509/index.ts';
import { readIfPresent } from '../state/files.ts';

/** SPKI of each block of a PEM file of public keys. @throws NOT_FOUND; INVALID_CONFIG when a block is no P-256 public key */
export async function readReleaseKeys(path: string): Promise<readonly Uint8Array[]> {
  const content = await readIfPresent(path, 64 * 1024);
  if (content === undefined) throw new ControlError('NOT_FOUND', `there is no file ${path}`, { details: { reason: 'release-keys' } });
  const blocks = content.toString('utf8').split(/(?<=-----END PUBLIC KEY-----\n)/);
  return blocks.map((block, index) => {
    const der = parsePem('PUBLIC KEY', block);
    if (der === null) throw notKeys(`${path}: block ${index + 1}`, 'is no public key in PEM');
    try {
      return parseP256Spki(der);
    } catch (cause) {
      throw notKeys(`${path}: block ${index + 1}`, 'is no P-256 key', cause);
    }
  });
}

/** One of the configuration: base64 of its SPKI. */
export function isReleaseKey(text: string): boolean {
  try {
    parseP256Spki(new Uint8Array(Buffer.from(text, 'base64')));
    return true;
  } catch {
    return false;
  }
}

const notKeys = (block: string, what: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_CONFIG', `${block} ${what}`, { details: { reason: 'release-keys' }, cause });
