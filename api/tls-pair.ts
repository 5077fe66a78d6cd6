/** Key and certificate of the internal listener. */
import { createSecureContext } from 'node:tls';
import { ControlError } from '../domain/errors.ts';
import { readTlsFiles, type TlsFileContent, type TlsFiles } from '../runtime/tls-files.ts';

/** PEM. */
export interface TlsPair {
  readonly key: string | Buffer;
  readonly cert: string | Buffer;
}

/** @throws INVALID_CONFIG when a file is missing or the key is not the certificate's */
export async function readTlsPair(files: TlsFiles): Promise<TlsFileContent> {
  try {
    const pair = await readTlsFiles(files);
    createSecureContext(pair);
    return pair;
  } catch (cause) {
    throw unusable(`the internal certificate ${files.cert} and its key cannot be used`, cause);
  }
}

/** @throws INVALID_CONFIG when the key is not the certificate's, or one of them does not parse */
export function assertPair(pair: TlsPair): void {
  try {
    createSecureContext(pair);
  } catch (cause) {
    throw unusable('the key does not belong to the certificate', cause);
  }
}

const unusable = (message: string, cause: unknown): ControlError =>
  new ControlError('INVALID_CONFIG', message, {
    details: { reason: 'tls-files', hint: 'better-compute start writes them; they live for at most 30 days' },
    cause,
  });
