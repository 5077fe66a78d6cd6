import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Argument, Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { about, productionTimes } from '../../../domain/rotation/gates.ts';
import { parseStageEvidence } from '../../../pki/audit/evidence.ts';
import { type EvidenceFile, parseEvidenceFile } from '../../../pki/audit/evidence-file.ts';
import { type EvidenceVerdict, verifyRotationEvidence } from '../../../pki/audit/verify-evidence.ts';
import { isKeyEvidence, type KeyEvidenceVerdict, verifyKeyEvidence } from '../../../pki/audit/verify-key-evidence.ts';
import { isQuorumEvidence, type QuorumVerdict, verifyQuorumEvidence } from '../../../pki/audit/verify-quorum-evidence.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { instantText, shortId } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { parsePin } from '../audit/pin.ts';
import { fetchEvidence } from './evidence.ts';

export interface RotationVerifyOptions extends CommonOptions {
  /** A file, or a folder of them; null asks the running deployment for its newest rotation. */
  readonly path: string | null;
  readonly pin: string | null;
  readonly pki: string | null;
  /** Accepts the overlap the documents themselves name, and says that it did. */
  readonly demonstration: boolean;
}

/** @param words how it is called: it stands in two groups */
export function newRotationVerify(run: (options: RotationVerifyOptions) => Promise<void>, words = 'rotation verify'): Command {
  const command = new Command('verify')
    .description('Check the evidence of a rotation, offline: signatures, chain, order, gates, and an overlap of at least 24 h')
    .addArgument(new Argument('[path]', 'evidence file, or a folder of them; without, the newest of the running deployment'))
    .option('--pin <pin>', 'pin of the audit key, sha256/…; else BETTER_COMPUTE_AUDIT_PIN, else the key bundle')
    .option('--pki <file>', 'key bundle to read the pin from')
    .option('--demonstration', 'accept the short overlap of a demonstration; proves nothing about a production deployment', false)
    .action((path: string | undefined, flags: { pin?: string; pki?: string; demonstration: boolean }) =>
      run({
        ...commonOptions(command),
        path: path ?? null,
        pin: flags.pin ?? null,
        pki: flags.pki ?? null,
        demonstration: flags.demonstration,
      }),
    );
  return withExamples(command, [
    `better-compute ${words} evidence.json --pki pki.json`,
    `better-compute ${words} evidence.json --pin sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=`,
    `better-compute ${words}`,
  ]);
}

export interface VerifiedFile {
  readonly source: string;
  readonly minOverlapMs: number;
  readonly verdict: EvidenceVerdict | KeyEvidenceVerdict | QuorumVerdict;
}

const isKeyVerdict = (verdict: VerifiedFile['verdict']): verdict is KeyEvidenceVerdict => 'key' in verdict;
const isQuorumVerdict = (verdict: VerifiedFile['verdict']): verdict is QuorumVerdict => 'approvedBy' in verdict;

export async function rotationVerifyRun(options: RotationVerifyOptions, ports: Ports): Promise<void> {
  const pin = await readPin(options, ports);
  const { rotationTimes } = await import('../../../runtime/config.ts');
  const insisted = rotationTimes(ports.io.env).overlapMs;
  const files = options.path === null ? [await fromDeployment(ports)] : readFiles(options.path);
  const verified = files.map(({ source, file }) => {
    const minOverlapMs = options.demonstration ? Math.min(insisted, shortestOverlap(file)) : insisted;
    const keys = { auditKey: file.auditKey, pin };
    if (isQuorumEvidence(file.documents)) return { source, minOverlapMs: insisted, verdict: verifyQuorumEvidence(file.documents, keys) };
    if (isKeyEvidence(file.documents)) return { source, minOverlapMs: insisted, verdict: verifyKeyEvidence(file.documents, keys) };
    return { source, minOverlapMs, verdict: verifyRotationEvidence(file.documents, { ...keys, minOverlapMs }) };
  });
  if (options.json) writeJson(ports.io, { verified: verified.map(toJson) });
  else for (const one of verified) ports.io.out(describe(one));
  if (verified.some(isDemonstration)) {
    ports.io.err('warning: checked with the overlap of a demonstration; this proves nothing about a production deployment');
  }
  assertAllValid(verified);
}

const isDemonstration = ({ minOverlapMs }: { minOverlapMs: number }): boolean => minOverlapMs < productionTimes.overlapMs;

/** What the documents were made with; those that do not parse are the verifier's to report. */
function shortestOverlap(file: EvidenceFile): number {
  const overlaps = file.documents.flatMap(({ document }) => {
    try {
      return [parseStageEvidence(document).times.overlapMs];
    } catch {
      return [];
    }
  });
  return Math.min(productionTimes.overlapMs, ...overlaps);
}

/** AUD-005: --pin, then the environment, then the bundle's public half. */
async function readPin({ pin, pki }: RotationVerifyOptions, { io, settings }: Ports): Promise<string> {
  const given = pin ?? (pki === null ? io.env['BETTER_COMPUTE_AUDIT_PIN'] : undefined);
  if (given !== undefined && given !== '') return parsePin(given);
  const { readBundlePins } = await import('../../bundle-pins.ts');
  const pins = readBundlePins(pki ?? settings.bundlePath, settings.secret());
  if (!pins.authenticated) io.err('warning: the bundle is not checked against its seal; whoever can write the file chooses the pin');
  return pins.audit;
}

async function fromDeployment(ports: Ports): Promise<{ source: string; file: EvidenceFile }> {
  const { rotationId, file } = await fetchEvidence(ports.api(), null);
  return { source: `rotation ${rotationId} of the running deployment`, file };
}

function readFiles(path: string): { source: string; file: EvidenceFile }[] {
  const paths = statOf(path).isDirectory()
    ? readdirSync(path)
        .filter((name) => name.endsWith('.json'))
        .sort()
        .map((name) => join(path, name))
    : [path];
  if (paths.length === 0)
    throw new ControlError('NOT_FOUND', `${path} holds no evidence file (*.json)`, { details: { reason: 'no-evidence' } });
  return paths.map((source) => ({ source, file: parseEvidenceFile(readFileSync(source, 'utf8')) }));
}

function statOf(path: string): { isDirectory(): boolean } {
  try {
    return statSync(path);
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, { details: { reason: 'no-file' }, cause });
  }
}

function describe({ source, verdict }: VerifiedFile): string {
  if (isQuorumVerdict(verdict)) return describeQuorum(source, verdict);
  if (isKeyVerdict(verdict)) return describeKey(source, verdict);
  const { rotationId, trustDomain, stages, overrides, overlapMs, problems, valid, outcome } = verdict;
  const forced = stages.find(({ overlap }) => overlap !== null && overlap.forcedReason !== '')?.overlap?.forcedReason;
  return [
    `${source}: rotation ${rotationId || '(unreadable)'} of ${trustDomain || '(unreadable)'}`,
    ...stages.map(describeStage),
    ...overrides.map(describeOverride),
    ...(forced === undefined ? [] : [`  forced     the overlap was cut short: ${forced}`]),
    ...(overlapMs === null ? [] : [`  overlap    ${about(overlapMs)}`]),
    ...problems.map(describeProblem),
    `verdict: ${valid ? `VALID, ${outcome}` : `NOT VALID, ${problems.length} problem(s)`}`,
  ].join('\n');
}

function describeKey(
  source: string,
  { rotationId, trustDomain, key, subject, stages, overrides, problems, valid, outcome }: KeyEvidenceVerdict,
): string {
  return [
    `${source}: exchange ${rotationId} of ${trustDomain}, ${[subject, key].join(' ').trim()}`,
    ...stages.map(
      ({ stage, at, actor, from, to, processes }) =>
        `  ${stage.padEnd(10)} ${instantText(at)}  by ${actor}, ${shortId(from)} → ${shortId(to)}${processes === null ? '' : `, ${processes.length} process(es)`}`,
    ),
    ...overrides.map(describeOverride),
    ...problems.map(describeProblem),
    `verdict: ${valid ? `VALID, ${outcome}` : `NOT VALID, ${problems.length} problem(s)`}`,
  ].join('\n');
}

function describeQuorum(source: string, { document, approvedBy, problems, valid }: QuorumVerdict): string {
  return [
    `${source}: ${document === null ? '(unreadable)' : decisionOf(document)}`,
    ...approvedBy.map((kid) => `  approver   ${kid}`),
    ...problems.map(describeProblem),
    `verdict: ${valid ? 'VALID' : `NOT VALID, ${problems.length} problem(s)`}`,
  ].join('\n');
}

function decisionOf(document: NonNullable<QuorumVerdict['document']>): string {
  if (document.about === 'approver-set')
    return `change of the approvers ${document.id} of ${document.trustDomain}, epoch ${document.from.epoch} → ${document.to.epoch}`;
  const ends = document.commands.map(({ state, count }) => `${count} ${state}`).join(', ');
  return `batch ${document.id} of ${document.trustDomain}, ${document.batch.size} operation(s), ${document.batch.state}: ${ends}`;
}

const describeOverride = ({ kind, subject, actor, reason }: EvidenceVerdict['overrides'][number]): string =>
  `  override   ${[kind, subject].join(' ').trim()} by ${actor}: ${reason}`;
const describeProblem = ({ check, stage, message }: EvidenceVerdict['problems'][number]): string =>
  `  PROBLEM    ${check}: ${stage} ${message}`;

function describeStage({ stage, at, actor, publishedVersion, roots, fleet }: EvidenceVerdict['stages'][number]): string {
  const gate = fleet === null ? '' : `, ${fleet.nodes.length} node(s) at version ${fleet.version}`;
  return `  ${stage.padEnd(10)} ${instantText(at)}  by ${actor}, signing ${shortId(roots.signing)}, version ${publishedVersion ?? '-'}${gate}`;
}

const toJson = ({ verdict, ...file }: VerifiedFile): unknown =>
  isQuorumVerdict(verdict) ? { source: file.source, ...verdict } : rotationToJson({ ...file, verdict });

const rotationToJson = ({
  source,
  verdict,
  minOverlapMs,
}: Omit<VerifiedFile, 'verdict'> & { verdict: EvidenceVerdict | KeyEvidenceVerdict }): unknown => ({
  source,
  minOverlapMs,
  demonstration: isDemonstration({ minOverlapMs }),
  valid: verdict.valid,
  outcome: verdict.outcome,
  rotationId: verdict.rotationId,
  trustDomain: verdict.trustDomain,
  ...(isKeyVerdict(verdict)
    ? {
        key: verdict.key,
        subject: verdict.subject,
        stages: verdict.stages.map(({ stage, at, actor, from, to }) => ({ stage, at, actor, from, to })),
      }
    : {
        overlapMs: verdict.overlapMs,
        stages: verdict.stages.map(({ stage, at, actor, publishedVersion }) => ({ stage, at, actor, publishedVersion })),
      }),
  overrides: verdict.overrides,
  problems: verdict.problems,
});

function assertAllValid(verified: readonly VerifiedFile[]): void {
  const bad = verified.filter(({ verdict }) => !verdict.valid);
  const first = bad[0]?.verdict.problems[0];
  if (first === undefined) return;
  const onlyOverlap = bad.every(({ verdict }) => verdict.problems.every(({ check }) => check === 'overlap'));
  const wasShort = bad.some(
    ({ verdict }) =>
      !isKeyVerdict(verdict) &&
      !isQuorumVerdict(verdict) &&
      verdict.stages.some(({ times }) => times.overlapMs < productionTimes.overlapMs),
  );
  throw new ControlError('AUDIT_TAMPERED', `the evidence does not hold: ${first.stage} ${first.message}`, {
    details: {
      reason: 'evidence-not-valid',
      files: bad.map(({ source }) => source),
      ...(onlyOverlap && wasShort
        ? { hint: 'the rotation ran with the times of a demonstration: check it as one with --demonstration' }
        : {}),
    },
  });
}
