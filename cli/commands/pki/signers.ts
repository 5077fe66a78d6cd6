/** Keys of the bundle that are kept elsewhere: the flags that name them, and the signers that this command's environment knows. */
import { Option } from 'commander';
import type { ExternalKeys } from '../../../pki/bundle/index.ts';
import type { ExternalSigners } from '../../../pki/signers/index.ts';
import { openExternalSigners, readSignerEnvironment } from '../../../runtime/signers/external-signers.ts';
import type { Ports } from '../../ports.ts';

/** Key of the bundle → reference of its signer; null: the bundle keeps it. */
export interface SignerFlags extends Readonly<Record<keyof ExternalKeys, string | null>> {
  readonly createKeys: boolean;
}

export const createSignerKeysOption = (): Option =>
  new Option('--create-signer-keys', 'make the keys that these signers do not have yet').default(false);

/** The signers for the time of `work`. Nothing is started before a key is asked for. */
export async function withSigners<T>({ io }: Ports, work: (signers: ExternalSigners) => Promise<T>): Promise<T> {
  const signers = openExternalSigners(readSignerEnvironment(io.env), io.env);
  try {
    return await work(signers);
  } finally {
    signers.close();
  }
}

/** @throws INVALID_INPUT for a reference that is none; NOT_FOUND for a key that is not there and shall not be made */
export async function externalKeysOf({ createKeys, ...references }: SignerFlags, signers: ExternalSigners): Promise<ExternalKeys> {
  const keyAt = createKeys ? signers.create : signers.find;
  const keys: { -readonly [name in keyof ExternalKeys]: ExternalKeys[name] } = {};
  for (const name of ['rootCa', 'commandRoot', 'auditSigning'] as const) {
    const reference = references[name];
    if (reference !== null) keys[name] = await keyAt(reference);
  }
  return keys;
}
