import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isNodeId } from '../../domain/commands/ids.ts';
import { ControlError } from '../../domain/errors.ts';
import { second, showInstant } from '../../domain/time.ts';
import { type JoinBundle, joinBundleUnder, parseJoinBundle, parsePinsFile } from '../../pki/enroll/index.ts';
import { certificateId, parseCertificate } from '../../pki/x509/index.ts';
import { type JoinOptions, joinNode } from '../join.ts';
import { kernelBootId } from '../state/boot-id.ts';
import { readIfPresent } from '../state/files.ts';
import type { Identity } from '../state/identity.ts';
import { tpmAnswer, tpmEvidence } from '../tpm/attest.ts';
import { isTcti } from '../tpm/tools.ts';
import { approverSetPinOption, type CommonFlags, dataDirOption, examples, isJson, readPins } from './common.ts';
import type { BcdIo } from './io.ts';

interface JoinFlags extends CommonFlags {
  readonly role: 'node' | 'site';
  readonly attestor?: string;
  readonly nodeId?: string;
  readonly tpm: string;
  readonly tpmEk: 'rsa' | 'ecc';
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
    .option('--attestor <name>', 'who vouches for this machine (default: join-token)')
    .option('--node-id <id>', 'the node that this installed system is (attestor provisioned): a token for another one is refused')
    .option('--evidence-file <file>', 'what the attestor judges, in place of the token')
    .addOption(new Option('--tpm <tcti>', 'where the TPM is, for attestor tpm').default(defaultTcti).argParser(tcti))
    .addOption(new Option('--tpm-ek <kind>', 'which of its endorsement keys is listed').choices(['rsa', 'ecc']).default('rsa'))
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
        ...(await vouching(flags)),
        replace: flags.replace,
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
    'bcd join --node-id metal-7 @/run/better-compute/join',
    'bcd join --attestor tpm --pins /etc/better-compute/pins.json',
    'bcd join --replace - < join.txt',
  ]);
}

function seconds(value: string): number {
  if (!/^\d{1,6}$/.test(value)) throw new InvalidArgumentError('It must be a number of seconds.');
  return Number(value);
}

const defaultTcti = 'device:/dev/tpmrm0';

function tcti(value: string): string {
  if (!isTcti(value)) throw new InvalidArgumentError('It must be a TCTI, such as device:/dev/tpmrm0.');
  return value;
}

/** Who vouches, and with what. @throws INVALID_INPUT for flags that do not go together */
async function vouching(flags: JoinFlags): Promise<Pick<JoinOptions, 'attestor' | 'nodeId' | 'evidence' | 'answer' | 'tpm'>> {
  const { nodeId, evidenceFile, dataDir } = flags;
  const attestor = attestorOf(flags);
  if (attestor === 'tpm') {
    if (evidenceFile !== undefined) throw flagsError('--evidence-file', 'the evidence of attestor tpm comes from the TPM');
    const place = { tcti: flags.tpm, ek: flags.tpmEk };
    const at = { dataDir, place };
    return { attestor, tpm: place, evidence: () => tpmEvidence(at), answer: (asked) => tpmAnswer(at, asked) };
  }
  const evidence = evidenceFile === undefined ? null : await readEvidence(evidenceFile);
  return { attestor, evidence, ...(nodeId === undefined ? {} : { nodeId }) };
}

/** JOIN-015 to JOIN-017. */
function attestorOf({ attestor, nodeId }: JoinFlags): string {
  if (nodeId === undefined) return attestor ?? 'join-token';
  if (!isNodeId(nodeId)) throw flagsError('--node-id', `${JSON.stringify(nodeId.slice(0, 128))} cannot be the id of a node`);
  if (attestor === undefined || attestor === 'provisioned') return 'provisioned';
  throw flagsError('--node-id', `it is for attestor provisioned, not for ${attestor}`);
}

const flagsError = (flag: string, message: string): ControlError =>
  new ControlError('INVALID_INPUT', `${flag}: ${message}`, { details: { reason: 'flags', flag } });

async function readJoin(io: BcdIo, text: string | undefined, flags: JoinFlags): Promise<JoinBundle> {
  const { gateway, serverName, approverSetSha256 } = flags;
  const bundle = await believed(io, text, flags);
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

async function believed(io: BcdIo, text: string | undefined, { pins, attestor }: JoinFlags): Promise<JoinBundle> {
  const known = pins === undefined ? null : parsePinsFile(await readPins(pins));
  // A TPM vouches for itself: whom to believe is all that is needed besides.
  if (attestor === 'tpm' && text === undefined && known !== null) return { ...known, token: '' };
  const join = await joinText(io, text);
  return known === null ? parseJoinBundle(join) : joinBundleUnder(known, join);
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
