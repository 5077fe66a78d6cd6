import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { isWebSocketUrl, webSocketUrlForm } from '../../../daemon/transport/websocket/url.ts';
import { ControlError } from '../../../domain/errors.ts';
import { describePins, readPublicBundle } from '../../../pki/bundle/index.ts';
import { encodePem, parsePem } from '../../../pki/bundle/pem.ts';
import { encodePinsFile } from '../../../pki/enroll/index.ts';
import { parseP256Spki } from '../../../pki/x509/index.ts';
import { replaceWhole } from '../../../runtime/bundle-file-store.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { readShown } from '../pki/pins-view.ts';
import { pkiOption } from '../pki/source.ts';
import { installScript, type ScriptOptions } from './script.ts';

export interface InstallScriptOptions extends CommonOptions {
  readonly gateway: string;
  readonly serverName: string | null;
  readonly role: 'node' | 'site';
  readonly bcd: string;
  readonly bcdUrl: string | null;
  readonly bcdSha256: string | null;
  readonly dataDir: string;
  readonly approverSetSha256: string | null;
  /** wss URL of the gateway, for networks whose proxy takes TLS apart. */
  readonly websocketUrl: string | null;
  /** PEM files of public keys. */
  readonly releaseKey: readonly string[];
  readonly out: string | null;
  readonly pki: string | null;
}

interface Flags {
  readonly gateway: string;
  readonly serverName?: string;
  readonly role: 'node' | 'site';
  readonly bcd: string;
  readonly bcdUrl?: string;
  readonly bcdSha256?: string;
  readonly dataDir: string;
  readonly approverSetSha256?: string;
  readonly websocketUrl?: string;
  readonly releaseKey?: readonly string[];
  readonly out?: string;
  readonly pki?: string;
}

export function newInstallScript(run: (options: InstallScriptOptions) => Promise<void>): Command {
  const command = new Command('install-script')
    .description('Write the script that installs bcd on a machine: pins, systemd unit, checksum; it holds no secret')
    .addOption(new Option('--gateway <url>', 'https URL of the gateway that machines dial').makeOptionMandatory().argParser(httpsUrl))
    .option('--server-name <name>', "name in the gateway's certificate, where it is not the host of the URL")
    .addOption(new Option('--role <role>', 'what the machines are').choices(['node', 'site']).default('node'))
    .addOption(new Option('--bcd <path>', 'place of the program on the machine').default('/usr/local/bin/bcd').argParser(machinePath))
    .addOption(new Option('--bcd-url <url>', 'where the machine fetches the program; needs --bcd-sha256').argParser(httpsUrl))
    .addOption(new Option('--bcd-sha256 <hex>', 'SHA-256 of the program').argParser(sha256))
    .addOption(
      new Option('--data-dir <folder>', 'identity, trust and journal on the machine')
        .default('/var/lib/better-compute/bcd')
        .argParser(machinePath),
    )
    .addOption(
      new Option(
        '--approver-set-sha256 <hex>',
        'the only first approver set that machines take (pki trust-version prints it); without, a machine keeps the one it has',
      ).argParser(sha256),
    )
    .addOption(
      new Option(
        '--websocket-url <url>',
        'wss URL by which machines behind a proxy that takes TLS apart reach the gateway (they join over gRPC)',
      ).argParser(wssUrl),
    )
    .option(
      '--release-key <file...>',
      'public key (PEM) of who may publish bcd: machines replace it by what that key signed, else it is replaced by hand',
    )
    .option('--out <file>', 'file to write; standard output without')
    .addOption(pkiOption())
    .action((flags: Flags) =>
      run({
        ...commonOptions(command),
        ...flags,
        serverName: flags.serverName ?? null,
        bcdUrl: flags.bcdUrl ?? null,
        bcdSha256: flags.bcdSha256 ?? null,
        approverSetSha256: flags.approverSetSha256 ?? null,
        websocketUrl: flags.websocketUrl ?? null,
        releaseKey: flags.releaseKey ?? [],
        out: flags.out ?? null,
        pki: flags.pki ?? null,
      }),
    );
  return withExamples(command, [
    'better-compute daemon install-script --gateway https://gw.eu-1.compute.example.com --out install.sh',
    'better-compute daemon install-script --gateway https://gw.eu-1.compute.example.com \\',
    '    --bcd-url https://downloads.example.com/bcd-0.1.0 --bcd-sha256 "$(sha256sum bcd-0.1.0 | cut -d" " -f1)" > install.sh',
    'better-compute tokens create > token && scp install.sh token root@machine: && ssh root@machine sh install.sh @token',
  ]);
}

function httpsUrl(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : null;
  if (url?.protocol === 'https:' && url.username === '' && url.password === '') return value;
  throw new InvalidArgumentError('It must be an https URL without a user name.');
}

function wssUrl(value: string): string {
  if (isWebSocketUrl(value)) return value;
  throw new InvalidArgumentError(`It ${webSocketUrlForm}.`);
}

/** Absolute, on one line: it stands in a unit and in a script. */
function machinePath(value: string): string {
  if (isAbsolute(value) && /^[\x20-\x7e]{2,255}$/.test(value) && !value.includes('..')) return value;
  throw new InvalidArgumentError('It must be an absolute path of printable characters.');
}

function sha256(value: string): string {
  if (/^[0-9a-f]{64}$/.test(value)) return value;
  throw new InvalidArgumentError('It must be 64 lower-case hex digits, as sha256sum and pki trust-version print them.');
}

/** CLI-017, CLI-020. */
export async function installScriptRun(options: InstallScriptOptions, ports: Ports): Promise<void> {
  const download = downloadOf(options);
  const { text, authenticated } = await readShown(options.pki, ports);
  const { trustDomain, servingCaPin, joinSigningPin, joinSigningKey } = describePins(readPublicBundle(text), authenticated);
  const { gateway, serverName, approverSetSha256 } = options;
  const pins = encodePinsFile({
    trustDomain,
    gateway,
    ...(serverName === null ? {} : { serverName }),
    servingCaPin,
    joinKey: new Uint8Array(Buffer.from(joinSigningKey, 'base64')),
    ...(approverSetSha256 === null ? {} : { approverSetSha256 }),
  });
  const releaseKeys = releaseKeysOf(options.releaseKey);
  const { role, bcd: program, dataDir, websocketUrl } = options;
  const script = installScript({ trustDomain, pins, download, releaseKeys, role, program, dataDir, websocketUrl });
  const digest = createHash('sha256').update(script).digest('hex');
  const out = options.out === null ? null : resolve(options.out);
  if (out !== null) await replaceWhole(out, script);
  const facts = { sha256: digest, out, trustDomain, authenticated, servingCaPin, joinSigningPin };
  if (options.json) return writeJson(ports.io, out === null ? { ...facts, script } : facts);
  if (out === null) ports.io.out(script);
  else ports.io.out(`out: ${out}\nsha256: ${digest}`);
  ports.io.err(`SHA-256 of the script: ${digest}; on the machine: sh install.sh @FILE with a token from better-compute tokens create`);
}

/** The blocks of all files, as one. @throws INVALID_INPUT for what is no P-256 public key */
function releaseKeysOf(files: readonly string[]): string | null {
  if (files.length === 0) return null;
  return files
    .map((file) => {
      const spki = within(file, () => {
        const der = parsePem('PUBLIC KEY', readFileSync(file, 'utf8'));
        return der === null ? null : parseP256Spki(der);
      });
      return encodePem('PUBLIC KEY', spki);
    })
    .join('');
}

function within(file: string, read: () => Uint8Array | null): Uint8Array {
  let cause: unknown;
  try {
    const spki = read();
    if (spki !== null) return spki;
  } catch (error) {
    cause = error;
  }
  throw new ControlError('INVALID_INPUT', `${file} holds no P-256 public key in PEM`, {
    details: { reason: 'release-key', hint: 'name the .pub file: better-compute batch keygen writes one beside the private key' },
    cause,
  });
}

function downloadOf({ bcdUrl, bcdSha256 }: InstallScriptOptions): ScriptOptions['download'] {
  if (bcdUrl !== null && bcdSha256 !== null) return { url: bcdUrl, sha256: bcdSha256 };
  if (bcdUrl === null && bcdSha256 === null) return null;
  const [given, needed] = bcdUrl === null ? ['--bcd-sha256', '--bcd-url'] : ['--bcd-url', '--bcd-sha256'];
  throw new ControlError('INVALID_INPUT', `${given} needs ${needed}: a machine never runs what it could not check`, {
    details: { reason: 'checksum-needed' },
  });
}
