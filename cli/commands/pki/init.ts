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
  type PkiBundle,
  readPublicBundle,
} from '../../../pki/bundle/index.ts';
import { encodePem } from '../../../pki/x509/index.ts';
import { createWhole } from '../../../runtime/bundle-file-store.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { writePins } from './pins-view.ts';
import { type BundleSource, pkiOption, secretOf, withSource } from './source.ts';

export interface PkiInitOptions extends CommonOptions {
  readonly trustDomain: string;
  readonly pki: string | null;
  readonly plaintext: boolean;
  readonly offlineRoot: string | null;
}

export function newPkiInit(run: (options: PkiInitOptions) => Promise<void>): Command {
  const command = new Command('init')
    .description("Create the deployment's keys: one file, mode 0600, sealed with BETTER_COMPUTE_SECRET")
    .addOption(new Option('--trust-domain <name>', 'name of the deployment: a-z, 0-9, ".", "-" and "_"').makeOptionMandatory())
    .addOption(pkiOption())
    .option('--plaintext', 'write the private keys unsealed, as PEM', false)
    .option('--offline-root <file>', 'write the root key to this file, to be kept off the servers')
    .action((flags: { trustDomain: string; pki?: string; plaintext: boolean; offlineRoot?: string }) =>
      run({ ...commonOptions(command), ...flags, pki: flags.pki ?? null, offlineRoot: flags.offlineRoot ?? null }),
    );
  return withExamples(command, [
    'export BETTER_COMPUTE_SECRET=$(openssl rand -base64 48)',
    'better-compute pki init --trust-domain compute.example.com',
    'better-compute pki init --trust-domain compute.example.com --offline-root /media/usb/root-ca.key',
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
    for (const file of rootPath === null ? [source.name] : [source.name, rootPath]) assertAbsent(file);
    const { bundle, rootKey } = await create(options, ports.io.now());
    const text = encodeBundle(bundle, sealing);
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
    if (root.rootPath !== null) await unlink(root.rootPath);
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

async function create({ trustDomain, offlineRoot }: PkiInitOptions, now: number): Promise<{ bundle: PkiBundle; rootKey: string | null }> {
  if (offlineRoot === null) return { bundle: await createBundle({ trustDomain, now }), rootKey: null };
  const { bundle, rootKey } = await createBundleWithOfflineRoot({ trustDomain, now });
  return { bundle, rootKey: encodePem('PRIVATE KEY', rootKey.export({ type: 'pkcs8', format: 'der' })) };
}
