/** Scopes and approver sets: merkle, trust-walk. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { ControlError } from '../../../domain/errors.ts';
import { approverSetParts, decideApproverSet, type HeldSet, isIncluded } from '../../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../../pki/trust/index.ts';
import { kidOf, spkiOf } from '../../../pki/x509/index.ts';
import { signingInput, type TrustBundle, TrustBundleSchema } from '../../../proto/index.ts';
import { base64Field, type Case, textField, textsField } from '../case.ts';

const malformed = (field: string, message: string): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `the case's ${field} ${message}`, { details: { reason: 'case', field } });

/** A 64-bit number as text. Above 2^53 there is no tree: the number it turns into is no place in one. */
const countField = (read: Case, name: string): number => {
  const text = textField(read, name);
  if (!/^\d{1,20}$/.test(text)) throw malformed(name, 'is not a whole number');
  return Number(text);
};

export const judgeMerkle = (read: Case): void => {
  const siblings = textsField(read, 'proofB64').map((_, index, all) => base64Field({ proofB64: all[index] }, 'proofB64'));
  const included = isIncluded({
    hash: base64Field(read, 'leafHashB64'),
    root: base64Field(read, 'rootB64'),
    size: countField(read, 'treeSize'),
    proof: { index: countField(read, 'leafIndex'), siblings },
  });
  if (!included)
    throw new ControlError('BAD_SIGNATURE', 'the proof does not lead from the leaf to the root', { details: { reason: 'not-included' } });
};

interface Approver {
  readonly kid: string;
  readonly spki: Uint8Array;
  readonly privateKey: KeyObject;
}

const approvers = new Map<number, Approver>();

/** A case names keys by numbers; each number is one key for as long as the process runs. */
const approverOf = (index: number): Approver => {
  const known = approvers.get(index);
  if (known !== undefined) return known;
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = spkiOf(privateKey);
  const made = { kid: kidOf(spki), spki, privateKey };
  if (approvers.size < mostKeys) approvers.set(index, made);
  return made;
};

const mostKeys = 1_000;
const trustDomain = 'conformance.example.com';

interface Step {
  readonly keys: readonly number[];
  readonly threshold: number;
  readonly sigs: readonly number[];
}

const isIndexes = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length <= 64 && value.every((index) => Number.isInteger(index) && index >= 0 && index < mostKeys);

const stepsOf = (read: Case): readonly Step[] => {
  const steps = read['steps'];
  if (!Array.isArray(steps) || steps.length > 256) throw malformed('steps', 'is not a list of at most 256 sets');
  return steps.map((step: Partial<Step> | null, at) => {
    const { keys, threshold, sigs } = step ?? {};
    if (isIndexes(keys) && isIndexes(sigs) && Number.isInteger(threshold) && (threshold as number) >= 0)
      return { keys, sigs, threshold: threshold as number };
    throw malformed('steps', `has no keys, threshold and sigs at ${at + 1}`);
  });
};

/** The bundle that offers a step as the set of its epoch, signed by whom the step says. */
const bundleOf = ({ keys, threshold, sigs }: Step, epoch: number): TrustBundle => {
  const quorum: QuorumFields = { ...noQuorum, approverKeys: keys.map(approverOf), approverThreshold: threshold };
  const input = signingInput('approver-set', approverSetParts({ epoch, quorum, trustDomain }));
  const signed = (index: number): { kid: string; sig: Uint8Array } => {
    const { kid, privateKey } = approverOf(index);
    return { kid, sig: sign('sha256', input, { key: privateKey, dsaEncoding: 'ieee-p1363' }) };
  };
  return create(TrustBundleSchema, {
    approverKeys: quorum.approverKeys.map(({ kid, spki }) => ({ kid, spkiDer: spki })),
    approverThreshold: threshold,
    approverSetEpoch: BigInt(epoch),
    approverSetSignatures: sigs.map(signed),
  });
};

/** For each step, in order, whether a machine that took every step it could takes this one too. */
export const judgeTrustWalk = (read: Case): readonly boolean[] => {
  let held: HeldSet = { quorum: null, epoch: 0 };
  return stepsOf(read).map((step, at) => {
    const decision = decideApproverSet(held, bundleOf(step, at + 1), { trustDomain });
    if (decision.kind !== 'take') return false;
    held = { quorum: decision.quorum, epoch: decision.epoch };
    return true;
  });
};
