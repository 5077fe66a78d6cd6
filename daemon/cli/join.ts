import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../domain/errors.ts';
import { second, showInstant } from '../../domain/time.ts';
import { type JoinBundle, joinBundleUnder, parseJoinBundle, parsePinsFile } from '../../pki/enroll/index.ts';
import { certificateId, parseCertificate } from '../../pki/x509/index.ts';
import { joinNode } from '../join.ts';
import { kernelBootId } from '../state/boot-id.ts';
import { readIfPresent } from '../state/files.ts';
import type { Identity } from '../state/identity.ts';
import { approverSetPinOption, type CommonFlags, dataDirOption, examples, isJson, readPins } from './common.ts';
import type { BcdIo } from './io.ts';

interface JoinFlags extends CommonFlags {
  readonly role: 'node' | 'site';
  readonly attestor: string;
  readonly evidenceFile?: string;
  readonly pins?: string;
  readonly gateway?: string;
  readonly serverName?: string;
  readonly approverSetSha256?: string;
  readonly replace: boolean;
  readonly wait: number;
}

export function registerJoin(program: Command, io: BcdIo): void {
  const command = program
    .command('join')
    .description('Give this machine an identity: ask the control plane with a join string, once')
    .argument(
      '[join]',
      'the join string (bcjoin1.…), or with --pins the token alone; - or nothing reads it from standard input, @FILE from a file',
    )
    .addOption(dataDirOption())
    .addOption(new Option('--role <role>', 'what this machine is').choices(['node', 'site']).default('node'))
    .option('--attestor <name>', 'who vouches for this machine', 'join-token')
    .option('--evidence-file <file>', 'what the attestor judges, in place of the token')
    .option('--pins <file>', 'whom this machine believes, as daemon install-script wrote it; a join string must agree with it')
    .option('--gateway <url>', 'dial this gateway in place of the one in the join string')
    .option('--server-name <name>', "name in the gateway's certificate, where it is not the host of the URL")
    .addOption(approverSetPinOption('take this approver set as the first, and no other; until it comes, refuse destructive commands'))
    .option('--replace', 'put the new identity in the place of one that is there', false)
    .addOption(new Option('--wait <seconds>', 'how long to go on while the control plane cannot answer').default(60).argParser(seconds))
    .action(async (text: string | undefined, flags: JoinFlags) => {
      const bundle = await readJoin(io, text, flags);
      const identity = await joinNode({
        dataDir: flags.dataDir,
        bundle,
        role: flags.role,
        attestor: flags.attestor,
        replace: flags.replace,
        evidence: flags.evidenceFile === undefined ? null : await readEvidence(flags.evidenceFile),
        patienceMs: flags.wait * second,
        host: { root: '/', readBootId: () => kernelBootId.read() },
        random: Math.random,
        now: () => io.now(),
        say: (line) => io.err(line),
        sleep: (ms) => sleep(ms),
      });
      show(io, { identity, flags, json: isJson(command) });
    });
  examples(command, [
    'bcd join "$(better-compute tokens create)"',
    'bcd join @/run/join --data-dir /var/lib/better-compute/bcd',
    'bcd join --pins /etc/better-compute/pins.json @/run/token',
    'bcd join --replace - < join.txt',
  ]);
}

function seconds(value: string): number {
  if (!/^\d{1,6}$/.test(value)) throw new InvalidArgumentError('It must be a number of seconds.');
  return Number(value);
}

async function readJoin(io: BcdIo, text: string | undefined, flags: JoinFlags): Promise<JoinBundle> {
  const { gateway, serverName, pins, approverSetSha256 } = flags;
  const join = await joinText(io, text);
  const bundle = pins === undefined ? parseJoinBundle(join) : joinBundleUnder(parsePinsFile(await readPins(pins)), join);
  if (approverSetSha256 !== undefined && (bundle.approverSetSha256 ?? approverSetSha256) !== approverSetSha256) {
    throw new ControlError(
      'INVALID_INPUT',
      `--approver-set-sha256 ${approverSetSha256} is not the approver set ${bundle.approverSetSha256} that the join string or the pins name`,
      { details: { reason: 'approver-set-pin' } },
    );
  }
  return {
    ...bundle,
    ...(approverSetSha256 === undefined ? {} : { approverSetSha256 }),
    ...(gateway === undefined ? {} : { gateway: httpsUrl(gateway) }),
    ...(serverName === undefined ? {} : { serverName }),
  };
}

async function joinText(io: BcdIo, text: string | undefined): Promise<string> {
  if (text === undefined || text === '-') return io.readStdin();
  if (!text.startsWith('@')) return text;
  const content = await readIfPresent(text.slice(1), 64 * 1024);
  if (content === undefined) throw new ControlError('NOT_FOUND', `there is no file ${text.slice(1)}`, { details: { reason: 'join-file' } });
  return content.toString('utf8');
}

async function readEvidence(path: string): Promise<Uint8Array> {
  const content = await readIfPresent(path, 128 * 1024);
  if (content === undefined) throw new ControlError('NOT_FOUND', `there is no file ${path}`, { details: { reason: 'evidence-file' } });
  return content;
}

function httpsUrl(text: string): string {
  if (URL.canParse(text) && new URL(text).protocol === 'https:') return text;
  throw new ControlError('INVALID_INPUT', `--gateway "${text}" must be an https URL`, { details: { reason: 'gateway-url' } });
}

function show(io: BcdIo, { identity, flags, json }: { identity: Identity; flags: JoinFlags; json: boolean }): void {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  const facts = {
    nodeId: identity.nodeId,
    siteId: identity.siteId,
    role: identity.role,
    trustDomain: identity.trustDomain,
    generation: identity.generation.toString(),
    trustVersion: identity.trust.version.toString(),
    commandRoots: identity.trust.commandRoots.map(certificateId),
    certificateSerial: leaf.serial,
    certificateNotAfter: showInstant(leaf.notAfter),
    gatewayUrl: identity.gatewayUrl,
    dataDir: flags.dataDir,
  };
  if (json) return io.out(JSON.stringify(facts, null, 2));
  io.out(`joined as ${facts.role} ${facts.nodeId} of site ${facts.siteId} in ${facts.trustDomain}`);
  io.err(
    `certificate until ${facts.certificateNotAfter}, trust version ${facts.trustVersion} with ${facts.commandRoots.length} command root(s)`,
  );
  io.err(`next: bcd run --data-dir ${flags.dataDir}`);
}
