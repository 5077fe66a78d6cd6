import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import { isPlatform, isVersion } from '../../../domain/commands/release.ts';
import { ControlError } from '../../../domain/errors.ts';
import { signDaemonRelease } from '../../../pki/envelope/index.ts';
import { withApproverKey } from '../../batch/approver-key.ts';
import { writeNew } from '../../batch/files.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { encodeReleaseFile } from './release-file.ts';

export interface SignReleaseOptions extends CommonOptions {
  readonly program: string;
  readonly release: string;
  readonly platform: string;
  readonly key: string;
  readonly out: string;
}

export function newSignRelease(run: (options: SignReleaseOptions) => Promise<void>): Command {
  const command = new Command('sign-release')
    .description('Sign a program of bcd as a release, with a key that machines pin; where that key is, not on the control plane')
    .argument('<program>', 'the file: npm run bcd makes one')
    .addOption(
      new Option('--release <version>', 'what the program calls itself (MAJOR.MINOR.PATCH)').makeOptionMandatory().argParser(version),
    )
    .addOption(new Option('--platform <name>', 'such as linux-x64, for a program of one platform').default('any').argParser(platform))
    .requiredOption('--key <key>', 'the release key: a PEM file that others cannot read, or pkcs11:…')
    .requiredOption('--out <file>', 'the signed release; no file is overwritten')
    .action((program: string, flags: Omit<SignReleaseOptions, 'json' | 'program'>) =>
      run({ ...commonOptions(command), program, ...flags }),
    );
  return withExamples(command, [
    'npm run bcd -- --out release/bcd --release 0.2.0',
    'better-compute daemon sign-release release/bcd --release 0.2.0 --key release.pem --out bcd-0.2.0.json',
    'better-compute daemon sign-release release/bcd --release 0.2.0 --key "pkcs11:token=ci;object=release" --out bcd-0.2.0.json',
  ]);
}

function version(value: string): string {
  if (isVersion(value)) return value;
  throw new InvalidArgumentError('It must be MAJOR.MINOR.PATCH, such as 0.2.0.');
}

function platform(value: string): string {
  if (isPlatform(value)) return value;
  throw new InvalidArgumentError('It must be any, or like linux-x64.');
}

export async function signReleaseRun({ program, release, platform, key, out, json }: SignReleaseOptions, { io }: Ports): Promise<void> {
  const content = contentOf(program);
  const sha256 = createHash('sha256').update(content).digest('hex');
  const signed = await withApproverKey(key, io.env, (signer) =>
    signDaemonRelease(signer, { version: release, sha256, bytes: content.length, platform, releasedAtMs: io.now() }),
  );
  writeNew(out, encodeReleaseFile(signed, release));
  if (json) return writeJson(io, { version: release, platform, sha256, bytes: content.length, kid: signed.signature.kid, out });
  io.out(`written: ${out}`);
  io.err(`bcd ${release} for ${platform}: ${content.length} bytes, SHA-256 ${sha256}, signed by ${signed.signature.kid.slice(0, 12)}`);
}

function contentOf(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, {
      details: { reason: 'no-program', hint: 'make one: npm run bcd -- --out bcd' },
      cause,
    });
  }
}
