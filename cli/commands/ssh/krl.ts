import { resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { showInstant } from '../../../domain/time.ts';
import { readPublicBundle } from '../../../pki/bundle/index.ts';
import {
  createKrl,
  findRevocation,
  type Krl,
  maxKrlBytes,
  parseKrl,
  parseSshCaLine,
  parseSshCertificateLine,
  parseSshKeyLine,
} from '../../../pki/ssh/index.ts';
import { replaceWhole, withFileLock } from '../../../runtime/bundle-file-store.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { QuietExit } from '../../exit.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { readShown } from '../pki/pins-view.ts';
import { pkiOption } from '../pki/source.ts';
import { findFile, readLineFile, within } from './files.ts';

export interface SshKrlOptions extends CommonOptions {
  readonly file: string;
  readonly serial: readonly bigint[];
  readonly keyId: readonly string[];
  readonly key: readonly string[];
  readonly comment: string | null;
  readonly check: string | null;
  readonly pki: string | null;
}

interface Flags {
  readonly serial?: readonly bigint[];
  readonly keyId?: readonly string[];
  readonly key?: readonly string[];
  readonly comment?: string;
  readonly check?: string;
  readonly pki?: string;
}

export function newSshKrl(run: (options: SshKrlOptions) => Promise<void>): Command {
  const command = new Command('krl')
    .description('Revoke break-glass certificates in a list for RevokedKeys of sshd; without a flag, show the list')
    .argument('<file>', 'the list; a new one when there is none, else what is named is added to it')
    .addOption(new Option('--serial <n...>', 'serials of certificates, or ranges such as 100-199').argParser(collectSerials))
    .option('--key-id <text...>', 'key ids of certificates: everything signed for that name and reason')
    .option('--key <file...>', 'public keys, whoever certified them')
    .option('--comment <text>', 'stands in the list')
    .option('--check <file>', 'ask whether this certificate or key is revoked; exit code 6 when it is')
    .addOption(pkiOption())
    .action((file: string, flags: Flags) =>
      run({
        ...commonOptions(command),
        file,
        serial: flags.serial ?? [],
        keyId: flags.keyId ?? [],
        key: flags.key ?? [],
        comment: flags.comment ?? null,
        check: flags.check ?? null,
        pki: flags.pki ?? null,
      }),
    );
  return withExamples(command, [
    'better-compute ssh krl revoked.krl --serial 4711',
    'better-compute ssh krl revoked.krl --key ada.pub --comment "laptop lost"',
    'better-compute ssh krl revoked.krl --check id_ed25519-cert.pub',
  ]);
}

const maxRange = 10_000n;

function collectSerials(word: string, before: readonly bigint[] = []): readonly bigint[] {
  const match = /^([1-9]\d{0,19})(?:-([1-9]\d{0,19}))?$/.exec(word);
  const first = BigInt(match?.[1] ?? 0);
  const last = BigInt(match?.[2] ?? first);
  if (match === null || last < first || last > 0xffff_ffff_ffff_ffffn || last - first >= maxRange)
    throw new InvalidArgumentError(`It must be a serial, or a range of at most ${maxRange} such as 100-199.`);
  return [...before, ...Array.from({ length: Number(last - first) + 1 }, (_, i) => first + BigInt(i))];
}

/** SSH-006 by hand; guests of sandboxes take no list (SBX-018). */
export async function sshKrlRun(options: SshKrlOptions, ports: Ports): Promise<void> {
  const { file, serial, keyId, key, comment, check } = options;
  const changes = serial.length + keyId.length + key.length > 0;
  if (check !== null && (changes || comment !== null))
    throw new ControlError('INVALID_INPUT', '--check asks, and the other flags change the list', {
      details: { reason: 'flags', hint: 'run the command once for each' },
    });
  if (changes) return writeList(options, ports);
  if (comment !== null)
    throw new ControlError('INVALID_INPUT', '--comment comes with what is revoked', {
      details: { reason: 'flags', hint: 'name --serial, --key-id or --key too' },
    });
  const before = await findList(file);
  if (before === null)
    throw new ControlError('NOT_FOUND', `there is no list ${file}`, {
      details: { reason: 'no-file', path: file, hint: 'name --serial, --key-id or --key, and it is made' },
    });
  if (check !== null) return answer(await readSubject(check), { krl: before, options, ports });
  report(before, options, ports);
}

async function findList(file: string): Promise<Krl | null> {
  const bytes = await findFile(file, maxKrlBytes);
  return bytes === null ? null : within(file, () => parseKrl(bytes));
}

/** The authority is read as pki show reads pins: a list for another one would revoke nothing. */
async function writeList(options: SshKrlOptions, ports: Ports): Promise<void> {
  const { text } = await readShown(options.pki, ports);
  const { sshCa } = readPublicBundle(text);
  if (sshCa === undefined)
    throw new ControlError('INVALID_STATE', 'the key bundle has no sshCa', { details: { reason: 'no-ssh-ca', key: 'sshCa' } });
  const authority = parseSshCaLine(sshCa.publicKey);
  const lines = await Promise.all(options.key.map(async (path) => [path, await readLineFile(path)] as const));
  const keys = lines.map(([path, line]) => within(path, () => parseSshKeyLine(line)));
  const path = resolve(options.file);
  // Read and written under one lock: of two that revoke at once, none takes back what the other revoked.
  const written = await withFileLock(path, async () => {
    const before = await findList(options.file);
    const { bytes, krl } = createKrl({
      ...(before === null ? {} : { base: before }),
      version: (before?.version ?? 0n) + 1n,
      generatedAt: ports.io.now(),
      comment: options.comment ?? before?.comment ?? '',
      certificates: [{ authority, serials: options.serial, keyIds: options.keyId }],
      keys,
    });
    await replaceWhole(path, bytes);
    return krl;
  });
  report(written, options, ports);
  ports.io.err('sshd reads it at the next login, where RevokedKeys names it');
}

/** A certificate, or a plain key. */
async function readSubject(path: string) {
  const line = await readLineFile(path);
  return within(path, () => (/^\S+-cert-v01@openssh\.com /.test(line) ? parseSshCertificateLine(line) : parseSshKeyLine(line)));
}

interface Answering {
  readonly krl: Krl;
  readonly options: SshKrlOptions;
  readonly ports: Ports;
}

function answer(subject: Parameters<typeof findRevocation>[1], { krl, options: { check, json }, ports: { io } }: Answering): void {
  const by = findRevocation(krl, subject);
  if (json) writeJson(io, { file: check, revoked: by !== null, by });
  else io.out(`${check}: ${by === null ? 'not revoked' : `revoked (${by})`}`);
  if (by !== null) throw new QuietExit(6);
}

function report({ version, generatedAt, comment }: Krl, { file, json }: SshKrlOptions, { io }: Ports): void {
  const facts = { file, version: String(version), generatedAt: showInstant(Number(generatedAt) * 1_000), comment };
  if (json) return writeJson(io, facts);
  io.out(`${file}: version ${facts.version}, made ${facts.generatedAt}${comment === '' ? '' : `, ${comment}`}`);
}
