import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { encodePem } from '../../../pki/bundle/pem.ts';
import { kidOf, spkiOf } from '../../../pki/x509/index.ts';
import { openExternalSigners, readSignerEnvironment } from '../../../runtime/signers/external-signers.ts';
import { isReference, passphraseVariable, signerNames } from '../../batch/approver-key.ts';
import { writeNew, writeSafeJson } from '../../batch/files.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';

export interface BatchKeygenOptions extends CommonOptions {
  readonly out: string;
  readonly encrypt: boolean;
  /** A key of a token instead of a file; null: a file. */
  readonly key: string | null;
}

export function newBatchKeygen(run: (options: BatchKeygenOptions) => Promise<void>): Command {
  const command = new Command('keygen')
    .description(
      'Make an approver key: FILE for you alone, FILE.pub for BETTER_COMPUTE_APPROVER_KEYS; on your own machine, never on the control plane',
    )
    .requiredOption('--out <file>', 'private key (PEM, mode 0600); the public half goes to the same name with .pub')
    .option('--encrypt', `encrypt it with the passphrase of ${passphraseVariable}`, false)
    .option('--key <reference>', 'make the key in a token instead: pkcs11:…; only FILE.pub is written')
    .action((flags: { out: string; encrypt: boolean; key?: string }) =>
      run({ ...commonOptions(command), ...flags, key: flags.key ?? null }),
    );
  return withExamples(command, [
    'better-compute batch keygen --out alice.pem',
    'better-compute batch keygen --out alice.pem --encrypt',
    'better-compute batch keygen --key "pkcs11:token=alice;object=approver" --out alice',
  ]);
}

/** BATCLI-038. Neither file replaces another. */
export async function batchKeygenRun(options: BatchKeygenOptions, ports: Ports): Promise<void> {
  const spki = options.key === null ? makeFile(options, ports) : await makeInToken(options.key, options, ports);
  const kid = kidOf(spki);
  const written = options.key === null ? [options.out, `${options.out}.pub`] : [`${options.out}.pub`];
  if (options.json) return writeSafeJson(ports.io, { kid, files: written });
  ports.io.out(kid);
  ports.io.err(`written: ${written.join(', ')}; hand over the .pub file alone`);
}

function makeFile({ out, encrypt }: BatchKeygenOptions, { io }: Ports): Uint8Array {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = spkiOf(privateKey);
  const pem = encrypt ? encrypted(privateKey, io.env) : privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  writeNew(out, pem, 0o600);
  writeNew(`${out}.pub`, encodePem('PUBLIC KEY', spki));
  return spki;
}

function encrypted(key: KeyObject, env: NodeJS.ProcessEnv): string {
  const passphrase = env[passphraseVariable];
  if (passphrase !== undefined && passphrase !== '')
    return key.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase }).toString();
  throw new ControlError('MISSING_ENV', `${passphraseVariable} is not set`, {
    details: { reason: 'no-passphrase', variable: passphraseVariable },
  });
}

async function makeInToken(reference: string, { out, encrypt }: BatchKeygenOptions, { io }: Ports): Promise<Uint8Array> {
  if (!isReference(reference) || encrypt) {
    throw new ControlError(
      'INVALID_INPUT',
      encrypt ? '--encrypt is for a key in a file' : `${JSON.stringify(reference.slice(0, 64))} names no key of a token`,
      {
        details: { reason: 'flags', hint: 'write pkcs11:token=LABEL;object=LABEL' },
      },
    );
  }
  const signers = openExternalSigners(readSignerEnvironment(signerNames(io.env)), io.env);
  try {
    const { spki } = (await signers.create(reference)).signer;
    writeNew(`${out}.pub`, encodePem('PUBLIC KEY', spki));
    return spki;
  } finally {
    signers.close();
  }
}
