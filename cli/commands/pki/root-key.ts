/** The offline root key: one PEM file that pki init --offline-root wrote, read for the time of one command. */
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { ControlError } from '../../../domain/errors.ts';
import { type Signer, signerFromPrivateKey } from '../../../pki/x509/index.ts';
import type { CliIo } from '../../io.ts';

/** A P-256 key takes some 240 bytes; whatever is longer than this is another file. */
const maxBytes = 16 * 1024;

/**
 * @throws NOT_FOUND when the file cannot be read; INVALID_INPUT when it is no unencrypted P-256 private key in PEM. What is in the file
 *   never enters a message.
 */
export async function readRootKey(flag: string, io: Pick<CliIo, 'err'>): Promise<Signer> {
  const path = resolve(flag);
  const { text, mode } = await read(path);
  if ((mode & 0o077) !== 0) io.err(`warning: ${path} can be read by others: keep the root key where only you can read it`);
  const key = parse(text);
  if (key?.asymmetricKeyDetails?.namedCurve === 'prime256v1') return signerFromPrivateKey(key);
  const what = text.includes('ENCRYPTED PRIVATE KEY') ? 'is encrypted' : 'is not a P-256 private key in PEM';
  throw new ControlError('INVALID_INPUT', `--root-key ${path} ${what}`, {
    details: { reason: 'root-key', hint: 'give the file that pki init --offline-root wrote, as it was written' },
  });
}

async function read(path: string): Promise<{ text: string; mode: number }> {
  try {
    const file = await open(path, 'r');
    try {
      const { mode, size } = await file.stat();
      return { text: size > maxBytes ? '' : await file.readFile('utf8'), mode };
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `--root-key ${path} cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown fault'})`, {
      cause,
      details: { reason: 'no-file', path, hint: 'is the medium with the root key mounted?' },
    });
  }
}

function parse(text: string): KeyObject | null {
  try {
    return createPrivateKey({ key: text, format: 'pem' });
  } catch {
    // Never the cause: it may quote what it read.
    return null;
  }
}
