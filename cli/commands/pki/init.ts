import { existsSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import {
  assertSealingSecret,
  createBundle,
  createBundleWithOfflineRoot,
  describePins,
  type EncodeBundleOptions,
  encodeBundle,
  openBundle,
  type PkiBundle,
  readPublicBundle,
} from '../../../pki/bundle/index.ts';
import type { ExternalSigners } from '../../../pki/signers/index.ts';
import { encodePem } from '../../../pki/x509/index.ts';
import { createWhole, sweepTemporaries } from '../../../runtime/bundle-file-store.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { writePins } from './pins-view.ts';
import { createSignerKeysOption, externalKeysOf, type SignerFlags, withSigners } from './signers.ts';
import { type BundleSource, pkiOption, secretOf, withSource } from './source.ts';

export interface PkiInitOptions extends CommonOptions {
  readonly trustDomain: string;
  readonly pki: string | null;
  readonly plaintext: boolean;
  readonly offlineRoot: string | null;
  readonly signers: SignerFlags;
}

interface InitFlags {
  readonly trustDomain: string;
  readonly pki?: string;
  readonly plaintext: boolean;
  readonly offlineRoot?: string;
  readonly rootCaSigner?: string;
  readonly commandRootSigner?: string;
  readonly auditSigner?: string;
  readonly createSignerKeys: boolean;
}

export function newPkiInit(run: (options: PkiInitOptions) => Promise<void>): Command {
  const command = new Command('init')
    .description("Create the deployment's keys: one file, mode 0600, sealed with BETTER_COMPUTE_SECRET")
    .addOption(new Option('--trust-domain <name>', 'name of the deployment: a-z, 0-9, ".", "-" and "_"').makeOptionMandatory())
    .addOption(pkiOption())
    .option('--plaintext', 'write the private keys unsealed, as PEM', false)
    .option('--offline-root <file>', 'write the root key to this file, to be kept off the servers')
    .option('--root-ca-signer <reference>', 'keep the root key in a token or with a signer program')
    .option('--command-root-signer <reference>', 'keep the command-signing root there')
    .option('--audit-signer <reference>', 'keep the audit key there')
    .addOption(createSignerKeysOption())
    .action(({ trustDomain, plaintext, ...flags }: InitFlags) =>
      run({
        ...commonOptions(command),
        trustDomain,
        plaintext,
        pki: flags.pki ?? null,
        offlineRoot: flags.offlineRoot ?? null,
        signers: {
          rootCa: flags.rootCaSigner ?? null,
          commandRoot: flags.commandRootSigner ?? null,
          auditSigning: flags.auditSigner ?? null,
          createKeys: flags.createSignerKeys,
        },
      }),
    );
  return withExamples(command, [
    'export BETTER_COMPUTE_SECRET=$(openssl rand -base64 48)',
    'better-compute pki init --trust-domain compute.example.com',
    'better-compute pki init --trust-domain compute.example.com --offline-root /media/usb/root-ca.key',
    "better-compute pki init --trust-domain compute.example.com --command-root-signer 'pkcs11:token=compute;object=command-root' --create-signer-keys",
  ]);
}

/** CLI-001 to CLI-010. */
export async function pkiInitRun(options: PkiInitOptions, ports: Ports): Promise<void> {
  const sealing = sealingOf(options, secretOf(ports));
  await withSource(options.pki, ports, async (source) => {
    const rootPath = options.offlineRoot === null ? null : resolve(options.offlineRoot);
    if (rootPath === source.name) {
      throw new ControlError('INVALID_INPUT', `--offline-root and the key bundle are both ${rootPath}`, {
        details: { reason: 'same-file' },
      });
    }
    for (const file of rootPath === null ? [source.name] : [source.name, rootPath]) {
      // Before anything is refused: a run that was killed may have left the root's key beside its place.
      await sweepTemporaries(file);
      assertAbsent(file);
    }
    const { bundle, rootKey } = await withSigners(ports, (signers) => create(options, { signers, now: ports.io.now() }));
    const text = encodeBundle(bundle, sealing);
    // Keys that were made elsewhere are judged as every process will judge them: one key twice, for example.
    openBundle(text, sealing.secret === undefined ? {} : { secret: sealing.secret });
    await writeBoth(source, text, { rootPath, rootKey });
    ports.io.err(`wrote ${source.name}${rootPath === null ? '' : ` and the root key ${rootPath}: keep it off the servers`}`);
    writePins(describePins(readPublicBundle(text), sealing.secret !== undefined), ports, options.json);
  });
}

/** The root first: a bundle whose root key was lost could never replace a CA. */
async function writeBoth(source: BundleSource, text: string, root: { rootPath: string | null; rootKey: string | null }): Promise<void> {
  if (root.rootPath !== null && root.rootKey !== null) await createWhole(root.rootPath, root.rootKey);
  try {
    await source.create(text);
  } catch (error) {
    // A bundle that stands all the same (it was in place before its folder failed) keeps its root key.
    const stands = await source.read().then(
      (stored) => stored.text === text,
      () => false,
    );
    if (root.rootPath !== null && !stands) await unlink(root.rootPath);
    throw error;
  }
}

function sealingOf({ plaintext }: PkiInitOptions, secret: string | undefined): EncodeBundleOptions {
  if (plaintext && secret !== undefined) {
    throw new ControlError(
      'INVALID_INPUT',
      '--plaintext and BETTER_COMPUTE_SECRET exclude each other: an unsealed bundle is refused where the secret is set',
      {
        details: { reason: 'plaintext-with-secret', hint: 'leave --plaintext out, or unset BETTER_COMPUTE_SECRET' },
      },
    );
  }
  if (plaintext) return { plaintext: true };
  assertSealingSecret(secret);
  return { secret };
}

function assertAbsent(path: string): void {
  if (existsSync(path))
    throw new ControlError('INVALID_STATE', `${path} already exists: it is never overwritten`, {
      details: { reason: 'file-exists', path },
    });
}

async function create(
  { trustDomain, offlineRoot, signers: flags }: PkiInitOptions,
  { signers, now }: { signers: ExternalSigners; now: number },
): Promise<{ bundle: PkiBundle; rootKey: string | null }> {
  if (offlineRoot !== null && flags.rootCa !== null) {
    throw new ControlError('INVALID_INPUT', '--offline-root and --root-ca-signer exclude each other: the root key lies in one place', {
      details: { reason: 'two-root-places' },
    });
  }
  const { rootCa, ...external } = await externalKeysOf(flags, signers);
  if (offlineRoot === null) {
    const all = rootCa === undefined ? external : { ...external, rootCa };
    return { bundle: await createBundle({ trustDomain, now, external: all }), rootKey: null };
  }
  const { bundle, rootKey } = await createBundleWithOfflineRoot({ trustDomain, now, external });
  return { bundle, rootKey: encodePem('PRIVATE KEY', rootKey.export({ type: 'pkcs8', format: 'der' })) };
}
