/**
 * The offline check of the evidence of a key's exchange (H-17), as verify-evidence.ts does it for the command roots: believes the audit
 * key's pin and its own arithmetic, and reports every place where a check does not hold.
 */
import { ControlError } from '../../domain/errors.ts';
import { type ExchangedKey, exchanges, type KeyStanding, type RenewedCa } from '../../domain/rotation/key-exchanges.ts';
import { showInstant } from '../../domain/time.ts';
import { type EvidenceOverride, evidenceHash, type SignedEvidence } from './evidence.ts';
import { type KeyEvidence, type KeyStage, keyStages, parseKeyEvidence } from './key-evidence.ts';
import { checkSignatures, type EvidenceProblem, pinnedKey } from './verify-evidence.ts';

export interface KeyEvidenceVerdict {
  readonly valid: boolean;
  readonly rotationId: string;
  readonly trustDomain: string;
  readonly key: ExchangedKey | null;
  readonly subject: RenewedCa | '';
  readonly outcome: 'completed' | 'aborted' | 'in-progress';
  readonly stages: readonly KeyEvidence[];
  readonly problems: readonly EvidenceProblem[];
  readonly overrides: readonly EvidenceOverride[];
}

/** Which of the two verifiers a file is for; false for what parses as neither. */
export function isKeyEvidence([first]: readonly Pick<SignedEvidence, 'document'>[]): boolean {
  if (first === undefined) return false;
  try {
    parseKeyEvidence(first.document);
    return true;
  } catch {
    return false;
  }
}

/**
 * @throws ControlError AUDIT_TAMPERED when the key is not the pinned one, INVALID_INPUT when there is no document at all;
 * everything else is in the verdict
 */
export function verifyKeyEvidence(
  signed: readonly SignedEvidence[],
  options: { readonly auditKey: Uint8Array; readonly pin: string },
): KeyEvidenceVerdict {
  const key = pinnedKey(options);
  if (signed.length === 0)
    throw new ControlError('INVALID_INPUT', 'the evidence holds no document', { details: { reason: 'no-evidence' } });
  const problems: EvidenceProblem[] = [];
  const stages = readDocuments(signed, problems);
  checkSignatures(signed, key, problems);
  checkChain(signed, stages, problems);
  checkOrder(stages, problems);
  checkKeys(stages, problems);
  checkTimes(stages, problems);
  checkProcesses(stages, problems);
  return { valid: problems.length === 0, ...summaryOf(stages), stages, problems, overrides: stages.at(-1)?.overrides ?? [] };
}

type Summary = Pick<KeyEvidenceVerdict, 'rotationId' | 'trustDomain' | 'key' | 'subject' | 'outcome'>;

function summaryOf(stages: readonly KeyEvidence[]): Summary {
  const has = (one: KeyStage): boolean => stages.some(({ stage }) => stage === one);
  const outcome = has('abort') ? 'aborted' : has('confirm') ? 'completed' : 'in-progress';
  const [first] = stages;
  if (first === undefined) return { rotationId: '', trustDomain: '', key: null, subject: '', outcome };
  const { rotationId, trustDomain, key, subject } = first;
  return { rotationId, trustDomain, key, subject, outcome };
}

function readDocuments(signed: readonly SignedEvidence[], problems: EvidenceProblem[]): KeyEvidence[] {
  return signed.flatMap(({ document }, index) => {
    try {
      return [parseKeyEvidence(document)];
    } catch (error) {
      problems.push({ check: 'document', stage: `#${index + 1}`, message: (error as Error).message });
      return [];
    }
  });
}

type Say = (message: string) => void;
const saying =
  (problems: EvidenceProblem[], check: EvidenceProblem['check'], stage: string): Say =>
  (message) =>
    void problems.push({ check, stage, message });

/** Nothing left out, added, exchanged, or taken from another rotation. */
function checkChain(signed: readonly SignedEvidence[], stages: readonly KeyEvidence[], problems: EvidenceProblem[]): void {
  if (stages.length !== signed.length) return;
  for (const [index, stage] of stages.entries()) {
    const before = signed[index - 1];
    const say = saying(problems, 'chain', stage.stage);
    if (stage.sequence !== index + 1) say(`is number ${stage.sequence} of its rotation, but stands at place ${index + 1}`);
    if (stage.previous !== (before === undefined ? '0'.repeat(64) : evidenceHash(before.document)))
      say('does not follow the document before it');
    for (const field of ['rotationId', 'trustDomain', 'key', 'subject'] as const) {
      if (stage[field] !== stages[0]?.[field]) say(`belongs to ${field} ${stage[field]}`);
    }
  }
}

const needs: Readonly<Partial<Record<KeyStage, KeyStage>>> = Object.freeze({ processes: 'add', promote: 'add', retire: 'add' });

function checkOrder(stages: readonly KeyEvidence[], problems: EvidenceProblem[]): void {
  for (const [index, { stage, at }] of stages.entries()) {
    const say = saying(problems, 'order', stage);
    const last = stages[index - 1];
    if (last !== undefined && keyStages.indexOf(stage) <= keyStages.indexOf(last.stage)) say(`comes after ${last.stage}`);
    if (last !== undefined && at < last.at) say(`is dated ${showInstant(at)}, before ${last.stage} at ${showInstant(last.at)}`);
    const need = needs[stage];
    if (need !== undefined && !stages.slice(0, index).some((earlier) => earlier.stage === need)) say(`has no ${need} before it`);
  }
}

type Standing = KeyStanding['state'] | 'out';
const standing = ({ keys }: KeyEvidence, id: string): Standing => keys.find((key) => key.id === id)?.state ?? 'out';

interface Wanted {
  readonly of: 'from' | 'to';
  readonly is: readonly Standing[];
  readonly says: string;
}

/** How the two keys stand after a stage; a key that did not exist stands nowhere. */
const wanted: Readonly<Partial<Record<KeyStage, readonly Wanted[]>>> = Object.freeze({
  add: [{ of: 'to', is: ['waiting', 'signing', 'former'], says: 'does not hold the next key' }],
  promote: [{ of: 'to', is: ['signing'], says: 'is not signing with' }],
  abort: [{ of: 'from', is: ['signing'], says: 'is not signing again with' }],
  retire: [
    { of: 'from', is: ['out'], says: 'still holds' },
    { of: 'to', is: ['signing'], says: 'is not signing with' },
  ],
});

/** Who signs after each stage, and what is out after the retirement. */
function checkKeys(stages: readonly KeyEvidence[], problems: EvidenceProblem[]): void {
  for (const stage of stages) {
    for (const { of, is, says } of wanted[stage.stage] ?? []) {
      const id = stage[of];
      if (id !== null && !is.includes(standing(stage, id))) saying(problems, 'keys', stage.stage)(`${says} ${id}`);
    }
  }
}

/** A key signs, and leaves, no earlier than the document before said that it may. */
function checkTimes(stages: readonly KeyEvidence[], problems: EvidenceProblem[]): void {
  const opensAt = (id: string | null, before: number): number =>
    Math.max(0, ...stages.slice(0, before).map(({ keys }) => keys.find((key) => key.id === id)?.opensAt ?? 0));
  for (const [index, { stage, at, from, to }] of stages.entries()) {
    const opens = stage === 'promote' ? opensAt(to, index) : stage === 'retire' ? opensAt(from, index) : 0;
    if (at < opens) problems.push({ check: 'overlap', stage, message: `before ${showInstant(opens)}, when it was to open` });
  }
}

/** Every process the gate counted had what was new, or someone answers for it by name (H-02, H-08). */
function checkProcesses(stages: readonly KeyEvidence[], problems: EvidenceProblem[]): void {
  const stage = stages.find((one) => one.stage === 'processes');
  if (stage === undefined || stage.overrides.some(({ kind, subject }) => kind === 'force' && subject === 'processes')) return;
  const say = saying(problems, 'processes', 'processes');
  const expected = exchanges[stage.key].counts === 'gateways' ? stage.to : stage.bundle.digest;
  if ((stage.processes ?? []).length === 0) say('the gate passed on no process at all');
  for (const { id, kind, runs } of stage.processes ?? []) if (runs !== expected) say(`${kind} ${id} did not have it yet`);
}
