/**
 * The offline check of a rotation's evidence (H-17). The top function is the list of checks, in order; each proves one thing
 * and reports every place where it does not hold, so an operator sees all of what is wrong at once.
 *
 * It believes the audit key's pin, its own arithmetic and nothing else: not the database, not the file, not a clock.
 */
import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { about, dropOpensAt } from '../../domain/rotation/gates.ts';
import { minute, showInstant } from '../../domain/time.ts';
import {
  type EvidenceOverride,
  type EvidenceStage,
  evidenceHash,
  evidenceSigningInput,
  evidenceStages,
  fleetRoot,
  parseStageEvidence,
  type SignedEvidence,
  type StageEvidence,
} from './evidence.ts';

export type EvidenceCheck = 'document' | 'signature' | 'chain' | 'order' | 'roots' | 'fleet' | 'processes' | 'overlap' | 'version' | 'keys';

export interface EvidenceProblem {
  readonly check: EvidenceCheck;
  /** The stage it is about; its place in the file where the document does not say. */
  readonly stage: string;
  readonly message: string;
}

export interface EvidenceVerdict {
  /** true: every check held. A rotation that still goes on can be valid as far as it went. */
  readonly valid: boolean;
  readonly rotationId: string;
  readonly trustDomain: string;
  readonly outcome: 'completed' | 'aborted' | 'in-progress';
  readonly stages: readonly StageEvidence[];
  readonly problems: readonly EvidenceProblem[];
  /** What operators decided against a gate: valid, and to be read by whoever relies on the evidence. */
  readonly overrides: readonly EvidenceOverride[];
  /** From switch to drop; null before the drop. */
  readonly overlapMs: number | null;
}

export interface VerifyEvidenceOptions {
  /** SPKI (DER) of the audit key, as the file carries it. */
  readonly auditKey: Uint8Array;
  /** `sha256/<base64>` of that key, from the bundle or from the operator. */
  readonly pin: string;
  /** The overlap this verifier insists on, whatever the documents claim (ROT-008). */
  readonly minOverlapMs: number;
}

/**
 * @throws ControlError AUDIT_TAMPERED when the key is not the pinned one, INVALID_INPUT when there is no document at all;
 * everything else is in the verdict
 */
export function verifyRotationEvidence(signed: readonly SignedEvidence[], options: VerifyEvidenceOptions): EvidenceVerdict {
  const key = pinnedKey(options);
  const problems: EvidenceProblem[] = [];
  const stages = readDocuments(signed, problems);
  const [first] = stages;
  if (signed.length === 0)
    throw new ControlError('INVALID_INPUT', 'the evidence holds no document', { details: { reason: 'no-evidence' } });
  checkSignatures(signed, key, problems);
  checkChain(signed, stages, problems);
  checkOrder(stages, problems);
  checkRoots(stages, problems);
  for (const stage of stages) checkFleet(stage, problems);
  for (const stage of stages) checkProcesses(stage, problems);
  checkOverlap(stages, options.minOverlapMs, problems);
  checkVersions(stages, problems);
  return {
    valid: problems.length === 0,
    rotationId: first?.rotationId ?? '',
    trustDomain: first?.trustDomain ?? '',
    outcome: outcomeOf(stages),
    stages,
    problems,
    overrides: distinctOverrides(stages),
    overlapMs: overlapOf(stages),
  };
}

/** The key in the file is only as good as its pin. */
export function pinnedKey({ auditKey, pin }: Pick<VerifyEvidenceOptions, 'auditKey' | 'pin'>): KeyObject {
  const found = `sha256/${createHash('sha256').update(auditKey).digest('base64')}`;
  if (found !== pin) {
    throw new ControlError('AUDIT_TAMPERED', `the evidence is signed by ${found}, not by the pinned audit key ${pin}`, {
      details: { reason: 'wrong-audit-key', found, pin },
    });
  }
  return createPublicKey({ key: Buffer.from(auditKey), format: 'der', type: 'spki' });
}

function readDocuments(signed: readonly SignedEvidence[], problems: EvidenceProblem[]): StageEvidence[] {
  return signed.flatMap(({ document }, index) => {
    try {
      return [parseStageEvidence(document)];
    } catch (error) {
      problems.push({ check: 'document', stage: `#${index + 1}`, message: (error as Error).message });
      return [];
    }
  });
}

export function checkSignatures(signed: readonly SignedEvidence[], key: KeyObject, problems: EvidenceProblem[]): void {
  for (const [index, { document, signature }] of signed.entries()) {
    const input = evidenceSigningInput(document);
    // Of another length than 64 it is no signature in this encoding.
    const good = verify('sha256', input, { key, dsaEncoding: 'ieee-p1363' }, signature);
    if (!good) problems.push({ check: 'signature', stage: `#${index + 1}`, message: 'is not signed by the audit key' });
  }
}

/** Nothing left out, added, exchanged, or taken from another rotation. */
function checkChain(signed: readonly SignedEvidence[], stages: readonly StageEvidence[], problems: EvidenceProblem[]): void {
  if (stages.length !== signed.length) return;
  for (const [index, stage] of stages.entries()) {
    const before = signed[index - 1];
    const expected = before === undefined ? '0'.repeat(64) : evidenceHash(before.document);
    const say = (message: string): void => void problems.push({ check: 'chain', stage: stage.stage, message });
    if (stage.sequence !== index + 1) say(`is number ${stage.sequence} of its rotation, but stands at place ${index + 1}`);
    if (stage.previous !== expected) say('does not follow the document before it');
    if (stage.rotationId !== stages[0]?.rotationId) say(`belongs to rotation ${stage.rotationId}`);
    if (stage.trustDomain !== stages[0]?.trustDomain) say(`belongs to trust domain ${stage.trustDomain}`);
  }
}

/** Which stages must have happened before one may. */
const needs: Readonly<Partial<Record<EvidenceStage, readonly EvidenceStage[]>>> = Object.freeze({
  switch: ['add'],
  resign: ['switch'],
  abort: ['add'],
  drop: ['add', 'switch'],
});

function checkOrder(stages: readonly StageEvidence[], problems: EvidenceProblem[]): void {
  const seen = new Set<EvidenceStage>();
  let last: StageEvidence | undefined;
  for (const stage of stages) {
    const say = (message: string): void => void problems.push({ check: 'order', stage: stage.stage, message });
    if (last !== undefined && evidenceStages.indexOf(stage.stage) <= evidenceStages.indexOf(last.stage)) say(`comes after ${last.stage}`);
    if (last !== undefined && stage.at < last.at) say(`is dated ${showInstant(stage.at)}, before ${last.stage} at ${showInstant(last.at)}`);
    for (const need of needs[stage.stage] ?? []) if (!seen.has(need)) say(`has no ${need} before it`);
    seen.add(stage.stage);
    last = stage;
  }
}

interface ExpectedRoots {
  readonly signing: string;
  readonly trusted: readonly string[];
  readonly gone?: string;
}

/** Who signs, who is trusted and who must be gone after each stage; an abort after the switch exchanges the roles. */
function expectedRoots(stages: readonly StageEvidence[], before: string, after: string): Partial<Record<EvidenceStage, ExpectedRoots>> {
  const has = (wanted: EvidenceStage): boolean => stages.some(({ stage }) => stage === wanted);
  const [kept, dropped] = has('abort') ? [before, after] : [after, before];
  const both = [before, after];
  const ended = { signing: kept, trusted: [kept], gone: dropped };
  return {
    add: { signing: before, trusted: both },
    switch: { signing: after, trusted: both },
    abort: has('switch') ? { signing: before, trusted: both } : { signing: before, trusted: [before], gone: after },
    drop: ended,
    confirm: ended,
  };
}

function checkRoots(stages: readonly StageEvidence[], problems: EvidenceProblem[]): void {
  const planned = stages.find((stage) => stage.stage === 'add')?.roots;
  if (planned === undefined || planned.new === null) {
    if (stages.some((stage) => stage.stage !== 'plan')) problems.push({ check: 'roots', stage: 'add', message: 'names no new root' });
    return;
  }
  const expected = expectedRoots(stages, planned.old, planned.new);
  for (const { stage, roots } of stages) {
    const say = (message: string): void => void problems.push({ check: 'roots', stage, message });
    if (roots.old !== planned.old || (stage !== 'plan' && roots.new !== planned.new)) say('names other roots than the add');
    for (const message of differences(roots, expected[stage])) say(message);
  }
}

function differences(roots: StageEvidence['roots'], want: ExpectedRoots | undefined): string[] {
  if (want === undefined) return [];
  return [
    ...(roots.signing === want.signing ? [] : [`is signing under ${roots.signing}, not ${want.signing}`]),
    ...want.trusted.filter((root) => !roots.trusted.includes(root)).map((root) => `does not trust root ${root}`),
    ...roots.trusted.filter((root) => root === want.gone).map((root) => `still trusts root ${root}`),
  ];
}

const isForced = (stage: StageEvidence, subjects: readonly string[]): boolean =>
  stage.overrides.some((override) => override.kind === 'force' && subjects.includes(override.subject));

/** The Merkle root is that of the nodes listed, and the gate held for them, or someone answers for it by name (H-01, H-08). */
function checkFleet(stage: StageEvidence, problems: EvidenceProblem[]): void {
  const { fleet } = stage;
  const say = (message: string): void => void problems.push({ check: 'fleet', stage: stage.stage, message });
  if (fleet === null) {
    if (stage.stage === 'switch' && !isForced(stage, ['switch', 'fleet'])) say('does not say which nodes the gate counted');
    return;
  }
  if (fleetRoot(fleet.nodes) !== fleet.root) say(`its Merkle root ${fleet.root} is not that of the nodes it lists`);
  if (stage.stage !== 'switch' || isForced(stage, ['switch', 'fleet'])) return;
  const excluded = new Set(stage.overrides.filter((o) => o.kind === 'exclude').map((o) => o.subject));
  const counted = fleet.nodes.filter((node) => !excluded.has(node.nodeId));
  const behind = counted.filter((node) => (node.version ?? 0) < fleet.version);
  if (counted.length === 0) say('the gate passed on no node at all');
  if (behind.length > 0)
    say(`${behind.length} of ${counted.length} node(s) had not applied version ${fleet.version} (${behind[0]?.nodeId})`);
}

/** Every process the switch counted ran this bundle, or had seen its version published (H-02). */
function checkProcesses(stage: StageEvidence, problems: EvidenceProblem[]): void {
  const { processes } = stage;
  if (stage.stage !== 'processes' || processes === null || isForced(stage, ['processes', 'switch'])) return;
  const behind = processes.filter((process) =>
    process.bundleDigest === null
      ? (process.publishedVersionSeen ?? 0) < (stage.publishedVersion ?? 0)
      : process.bundleDigest !== stage.bundle.digest,
  );
  for (const { kind, id } of behind) {
    problems.push({ check: 'processes', stage: stage.stage, message: `${kind} ${id} did not run the bundle yet` });
  }
}

/** The overlap was as long as this verifier insists on, and every worker key of the old root was dead (ROT-008, H-03). */
function checkOverlap(stages: readonly StageEvidence[], minOverlapMs: number, problems: EvidenceProblem[]): void {
  const drop = stages.find((stage) => stage.stage === 'drop');
  if (drop === undefined) return;
  const say = (message: string): void => void problems.push({ check: 'overlap', stage: 'drop', message });
  const since = exchangedAt(stages);
  if (drop.overlap === null || since === undefined) return say('does not say what opened it');
  const { switchedAt, lastWorkerNotAfter, opensAt, forcedReason } = drop.overlap;
  if (forcedReason !== '') return;
  // The bundle records the instant of the step, the document a moment later, perhaps by another host's clock.
  if (switchedAt > since + clockToleranceMs) say(`claims a switch at ${showInstant(switchedAt)}, after the evidence of it`);
  const earliest = dropOpensAt(
    { switchedAt, lastWorkerNotAfter },
    { ...drop.times, overlapMs: Math.max(drop.times.overlapMs, minOverlapMs) },
  );
  if (drop.at < earliest) say(`after ${about(drop.at - switchedAt)} of overlap; the earliest was ${showInstant(earliest)}`);
  if (drop.at < opensAt) say(`before ${showInstant(opensAt)}, when it was to open`);
}

/** The published version never falls, and the add and the drop each raise it (ROT-003, ROT-005). */
function checkVersions(stages: readonly StageEvidence[], problems: EvidenceProblem[]): void {
  let last = 0;
  for (const { stage, publishedVersion } of stages) {
    if (publishedVersion === null) continue;
    if (publishedVersion < last) problems.push({ check: 'version', stage, message: `version ${publishedVersion} after version ${last}` });
    last = Math.max(last, publishedVersion);
  }
}

/** What two clocks of one deployment may differ by: the window of a renewal (RENEW-006). */
const clockToleranceMs = minute;

/** When the overlap began: the switch, or the abort that took it back. */
const exchangedAt = (stages: readonly StageEvidence[]): number | undefined =>
  (stages.find((stage) => stage.stage === 'abort') ?? stages.find((stage) => stage.stage === 'switch'))?.at;

function overlapOf(stages: readonly StageEvidence[]): number | null {
  const drop = stages.find((stage) => stage.stage === 'drop');
  const since = drop?.overlap?.switchedAt ?? exchangedAt(stages);
  return drop === undefined || since === undefined ? null : drop.at - since;
}

function outcomeOf(stages: readonly StageEvidence[]): EvidenceVerdict['outcome'] {
  const has = (stage: EvidenceStage): boolean => stages.some((entry) => entry.stage === stage);
  if (has('abort')) return has('drop') || !has('switch') ? 'aborted' : 'in-progress';
  return has('drop') ? 'completed' : 'in-progress';
}

function distinctOverrides(stages: readonly StageEvidence[]): EvidenceOverride[] {
  const all = stages.flatMap((stage) => stage.overrides);
  return [...new Map(all.map((override) => [`${override.kind}\0${override.subject}`, override])).values()];
}
