/** What an approver set must be before anybody publishes or signs it (QUO-054 to QUO-065, H-09). */
import { ControlError } from '../../domain/errors.ts';
import type { QuorumFields, QuorumTierEntry } from '../trust/content.ts';
import { kidOf, parseP256Spki } from '../x509/spki.ts';

const largest = 0xffff_ffff;

const isWhole = (value: unknown, least: number, most: number): boolean =>
  Number.isInteger(value) && (value as number) >= least && (value as number) <= most;

/** Every fault, each with its value; empty for a good set. */
export function problemsOfQuorum(quorum: QuorumFields): readonly string[] {
  const { approverKeys, unbatchedDestructivePerHour } = quorum;
  return [
    ...problemsOfKeys(approverKeys),
    ...(approverKeys.length === 0 ? problemsWithoutKeys(quorum) : problemsOfThresholds(quorum)),
    ...(isWhole(unbatchedDestructivePerHour, 0, largest)
      ? []
      : [`unbatchedDestructivePerHour ${String(unbatchedDestructivePerHour)} is not a whole number from 0`]),
  ];
}

function problemsOfKeys(keys: QuorumFields['approverKeys']): string[] {
  const problems = keys.flatMap(({ kid, spki }, index) => {
    const problem = problemOfKey(kid, spki);
    return problem === null ? [] : [`approver key ${index + 1} of ${keys.length} ${problem}`];
  });
  const twice = keys.filter(({ kid }, index) => keys.findIndex((other) => other.kid === kid) < index);
  return [...problems, ...twice.map(({ kid }) => `approver key ${kid.slice(0, 12)} is listed more than once`)];
}

function problemOfKey(kid: string, spki: Uint8Array): string | null {
  try {
    return kidOf(parseP256Spki(spki)) === kid
      ? null
      : `has the id ${JSON.stringify(kid.slice(0, 12))}, which is not the SHA-256 of its key`;
  } catch {
    return 'is not a P-256 public key in its canonical form (SPKI DER, named curve, uncompressed point)';
  }
}

function problemsWithoutKeys({ approverThreshold, tiers, unbatchedDestructivePerHour }: QuorumFields): string[] {
  return [
    ...(approverThreshold === 0 ? [] : [`threshold ${approverThreshold} without approver keys`]),
    ...(tiers.length === 0 ? [] : [`${tiers.length} tier(s) without approver keys`]),
    ...(unbatchedDestructivePerHour === 0 ? [] : [`unbatchedDestructivePerHour ${unbatchedDestructivePerHour} without approver keys`]),
  ];
}

function problemsOfThresholds({ approverKeys, approverThreshold, tiers }: QuorumFields): string[] {
  const keys = new Set(approverKeys.map(({ kid }) => kid)).size;
  const top = isWhole(approverThreshold, 1, keys)
    ? []
    : [`threshold ${approverThreshold} is not a whole number from 1 to the number of keys, ${keys}`];
  return [...top, ...tiers.flatMap((tier, index) => problemsOfTier(tier, tiers[index - 1], { keys, top: approverThreshold }))];
}

function problemsOfTier(
  { maxScopeSize, threshold }: QuorumTierEntry,
  before: QuorumTierEntry | undefined,
  { keys, top }: { readonly keys: number; readonly top: number },
): string[] {
  const name = `tier ${maxScopeSize}:${threshold}`;
  const rules: readonly [boolean, string][] = [
    [isWhole(maxScopeSize, 1, largest), 'has a size that is not a whole number from 1'],
    [isWhole(threshold, 1, keys), `has a threshold that is not a whole number from 1 to the number of keys, ${keys}`],
    [threshold <= top, `asks for more than the threshold ${top}: a larger batch would be cheaper to approve`],
    [before === undefined || maxScopeSize > before.maxScopeSize, `does not come after tier ${before?.maxScopeSize}: sizes must ascend`],
    [
      before === undefined || threshold >= before.threshold,
      `asks for less than tier ${before?.maxScopeSize}: thresholds must not decrease`,
    ],
  ];
  return rules.flatMap(([holds, problem]) => (holds ? [] : [`${name} ${problem}`]));
}

/**
 * The set as it was given, if it is one that can be published.
 *
 * @throws INVALID_CONFIG (`approvers`) with every fault in the message and in details.problems
 */
export function validateQuorum<Q extends QuorumFields>(quorum: Q): Q {
  const problems = problemsOfQuorum(quorum);
  if (problems.length === 0) return quorum;
  throw new ControlError('INVALID_CONFIG', `the approver set cannot be used: ${problems.join('; ')}`, {
    details: { reason: 'approvers', problems },
  });
}
