import { Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { day, hour, showInstant } from '../../../domain/time.ts';
import { openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import {
  createBreakGlassAuthority,
  createSandboxAuthority,
  type IssuedSshCertificate,
  parseSshKeyLine,
  sshFingerprint,
  sshSignerFromPrivateKey,
} from '../../../pki/ssh/index.ts';
import { replaceWhole } from '../../../runtime/bundle-file-store.ts';
import { actorOption, type CommonOptions, commonOptions, duration, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { openOptionsOf, pkiOption, withSource } from '../pki/source.ts';
import { readLineFile, sshAuthorityOf, within } from './files.ts';

export interface SshSignOptions extends CommonOptions {
  readonly key: string;
  readonly account: string | null;
  readonly node: string | null;
  readonly host: readonly string[];
  readonly ca: 'break-glass' | 'sandbox';
  readonly lifetimeMs: number | null;
  readonly command: string | null;
  readonly source: readonly string[];
  readonly reason: string | null;
  readonly actor: string;
  readonly out: string | null;
  readonly pki: string | null;
}

interface Flags {
  readonly key: string;
  readonly account?: string;
  readonly node?: string;
  readonly host?: readonly string[];
  readonly ca: SshSignOptions['ca'];
  readonly for?: number;
  readonly command?: string;
  readonly source?: readonly string[];
  readonly reason?: string;
  readonly actor: string;
  readonly out?: string;
  readonly pki?: string;
}

export function newSshSign(ports: Ports, run: (options: SshSignOptions) => Promise<void>): Command {
  const command = new Command('sign')
    .description('Sign an OpenSSH certificate: for one account on one node, or for a host')
    .addOption(new Option('--key <file>', 'public key to certify, such as id_ed25519.pub').makeOptionMandatory())
    .option('--account <name>', 'user certificate: the account it opens')
    .option('--node <id>', 'user certificate: the one node it opens the account on')
    .option('--host <name...>', 'host certificate: the names the host is reached by')
    .addOption(new Option('--ca <name>', 'authority that certifies a host').choices(['break-glass', 'sandbox']).default('break-glass'))
    .addOption(new Option('--for <time>', 'lifetime: at most 1h for a user (default 1h), 30d for a host (default 30d)').argParser(duration))
    .option('--command <text>', 'user certificate: runs this and nothing else')
    .option('--source <address...>', 'user certificate: addresses or networks it may be used from')
    .addOption(new Option('--reason <text>', 'why; stands in the logs of sshd').argParser(parseReason))
    .addOption(actorOption(ports.io))
    .option('--out <file>', 'where the certificate goes (default: standard output)')
    .addOption(pkiOption())
    .action((flags: Flags) => run({ ...commonOptions(command), ...settled(flags) }));
  return withExamples(command, [
    'better-compute ssh sign --key ~/.ssh/id_ed25519.pub --account root --node node-17 --out ~/.ssh/id_ed25519-cert.pub',
    'better-compute ssh sign --key id.pub --account root --node node-17 --for 15m --command "journalctl -b" --reason "boot loop"',
    'better-compute ssh sign --key /etc/ssh/ssh_host_ed25519_key.pub --host node-17 node-17.eu-1.example.com',
  ]);
}

function parseReason(value: string): string {
  if (/^\P{Cc}{1,200}$/u.test(value.trim())) return value.trim();
  throw new InvalidArgumentError('It must be one line of 1 to 200 characters.');
}

const settled = ({ for: lifetimeMs, ...flags }: Flags): Omit<SshSignOptions, 'json'> => ({
  ...flags,
  account: flags.account ?? null,
  node: flags.node ?? null,
  host: flags.host ?? [],
  lifetimeMs: lifetimeMs ?? null,
  command: flags.command ?? null,
  source: flags.source ?? [],
  reason: flags.reason ?? null,
  out: flags.out ?? null,
  pki: flags.pki ?? null,
});

const refuse = (message: string, hint: string): ControlError =>
  new ControlError('INVALID_INPUT', message, { details: { reason: 'flags', hint } });

/** Either kind, and nothing of the other. */
function assertOneKind({ account, node, host, command, source, ca }: SshSignOptions): 'user' | 'host' {
  if (host.length === 0) {
    if (account === null || node === null)
      throw refuse('a user certificate needs --account and --node', 'or name --host for a host certificate');
    if (ca === 'sandbox') throw refuse('the sandbox authority certifies users in sandboxes only, never here', 'leave --ca away');
    return 'user';
  }
  const other = Object.entries({ account, node, command, source: source[0] ?? null }).find(([, value]) => value !== null);
  if (other !== undefined) throw refuse(`--${other[0]} is for a user certificate, and --host asks for a host's`, 'sign them one by one');
  return 'host';
}

interface Signed extends IssuedSshCertificate {
  /** Of the certified key. */
  readonly fingerprint: string;
  readonly kind: 'user' | 'host';
  readonly principals: readonly string[];
}

/** SSH-001 to SSH-004, SBX-019 to SBX-022, as far as a command goes. */
export async function sshSignRun(options: SshSignOptions, ports: Ports): Promise<void> {
  const kind = assertOneKind(options);
  const publicKey = await readLineFile(options.key);
  const fingerprint = sshFingerprint(within(options.key, () => parseSshKeyLine(publicKey)).blob);
  const { text } = await withSource(options.pki, ports, (source) => source.read());
  const bundle = openBundle(text, openOptionsOf(ports));
  const sign = kind === 'user' ? signUser : signHost;
  const signed = { fingerprint, ...(await sign(options, { publicKey, bundle, ports })) };
  if (options.out !== null) await replaceWhole(options.out, `${signed.certificate}\n`);
  report(signed, options, ports);
}

interface Asked {
  readonly publicKey: string;
  readonly bundle: PkiBundle;
  readonly ports: Ports;
}

const keyIdOf = ({ actor, reason }: SshSignOptions): string => (reason === null ? actor : `${actor}: ${reason}`);

async function signUser(options: SshSignOptions, { publicKey, bundle, ports }: Asked): Promise<Omit<Signed, 'fingerprint'>> {
  const lifetimeMs = options.lifetimeMs ?? hour;
  if (lifetimeMs > hour || lifetimeMs < 1_000)
    throw refuse('--for must be 1s to 1h for a user certificate', 'sign again when it has expired');
  const { now } = ports.io;
  const [account, nodeId, keyId] = [options.account ?? '', options.node ?? '', keyIdOf(options)];
  const database = getDatabaseUrl(ports);
  const authority = createBreakGlassAuthority({ ...authorityOf(bundle, 'sshCa'), now });
  const issued = await authority.issueUserCertificate({
    publicKey,
    account,
    nodeId,
    keyId,
    // The session that asks is this command, which lives as long as what it signs.
    sessionEndsAt: now() + lifetimeMs,
    ttlSeconds: Math.floor(lifetimeMs / 1_000),
    ...(options.command === null ? {} : { forceCommand: options.command }),
    ...(options.source.length === 0 ? {} : { sourceAddresses: options.source }),
  });
  const { serial, principal, validBefore } = issued;
  const publicKeyOf = sshFingerprint(parseSshKeyLine(publicKey).blob);
  // Written down before it leaves (SSH-005): a certificate that nobody knows of could not be taken back.
  const { recordAt } = await import('./record.ts');
  await recordAt(database, { serial, nodeId, account, principal, keyId, publicKey: publicKeyOf, issuedTo: options.actor, validBefore });
  return { ...issued, kind: 'user', principals: [principal] };
}

function getDatabaseUrl({ settings }: Ports): string {
  const url = settings.databaseUrl();
  if (url !== null) return url;
  throw new ControlError(
    'MISSING_ENV',
    'a user certificate is written down before it is issued: BETTER_COMPUTE_DATABASE_URL is not set and no stack runs from this state folder',
    { details: { reason: 'no-database', hint: 'set BETTER_COMPUTE_DATABASE_URL' } },
  );
}

async function signHost(options: SshSignOptions, { publicKey, bundle, ports }: Asked): Promise<Omit<Signed, 'fingerprint'>> {
  const lifetimeMs = options.lifetimeMs ?? 30 * day;
  if (lifetimeMs > 30 * day || lifetimeMs < 1_000)
    throw refuse('--for must be 1s to 30d for a host certificate', 'sign again before it has expired');
  const { now } = ports.io;
  const isSandbox = options.ca === 'sandbox';
  const authority = (isSandbox ? createSandboxAuthority : createBreakGlassAuthority)({
    ...authorityOf(bundle, isSandbox ? 'sandboxSshCa' : 'sshCa'),
    now,
  });
  const request = { publicKey, principals: options.host, keyId: keyIdOf(options), validBefore: now() + lifetimeMs };
  return { ...(await authority.issueHostCertificate(request)), kind: 'host', principals: options.host };
}

function authorityOf(bundle: PkiBundle, name: 'sshCa' | 'sandboxSshCa') {
  const { publicKey, privateKey } = sshAuthorityOf(bundle, name);
  return { publicKey, signer: sshSignerFromPrivateKey(privateKey) };
}

function report(signed: Signed, options: SshSignOptions, { io }: Ports): void {
  const facts = {
    kind: signed.kind,
    principals: signed.principals,
    keyId: keyIdOf(options),
    serial: String(signed.serial),
    validBefore: showInstant(signed.validBefore),
    publicKey: signed.fingerprint,
  };
  if (options.json)
    return writeJson(io, { ...facts, ...(options.out === null ? { certificate: signed.certificate } : { file: options.out }) });
  if (options.out === null) io.out(signed.certificate);
  else io.out(options.out);
  io.err(`${signed.kind} certificate ${facts.serial} for ${signed.principals.join(', ')}, good until ${facts.validBefore}`);
  if (signed.kind === 'user') io.err(`to take it back: better-compute ssh revoke ${facts.serial} --reason "..."`);
}
