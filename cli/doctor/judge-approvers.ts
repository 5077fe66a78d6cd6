/**
 * The approver set, as doctor judges it (APPR-026 to APPR-028, DOC-009 to DOC-013, LAG-011 to LAG-016): what is configured against what was
 * introduced, judged as a machine that holds the current set would; and which machines enforce another. Pure.
 */
import { verifyApproverSetChange } from '../../pki/quorum/index.ts';
import { approverSetDigest, type QuorumFields } from '../../pki/trust/index.ts';
import type { SetLag } from '../../services/approver-lag.ts';
import { hasApprovers } from '../../services/published-quorum.ts';
import { error, type Finding, info, messageOf, warning } from './finding.ts';

export interface ApproverFacts {
  /** Of this environment; null: it names nobody. An Error: why it cannot be read. */
  readonly configured: QuorumFields | null | Error;
  readonly published: QuorumFields;
  /** The last set that was the first, or signed by the one before it; null before the first (A-PKI-15). */
  readonly introduced: QuorumFields | null;
  /** null: the bundle does not say. */
  readonly trustDomain: string | null;
  /** null: the database does not record it. */
  readonly lag: SetLag | null;
}

export const judgeApprovers = (facts: ApproverFacts): Finding[] => [...judgeConfigured(facts), ...judgeLag(facts)];

const epochOf = ({ approverSetEpoch }: QuorumFields): number => Number(approverSetEpoch);
const isSameSet = (a: QuorumFields, b: QuorumFields): boolean => approverSetDigest(a) === approverSetDigest(b);

function judgeConfigured({ configured, published, introduced, trustDomain }: ApproverFacts): Finding[] {
  if (configured instanceof Error)
    return [error('pki.approvers', messageOf(configured), 'correct the BETTER_COMPUTE_APPROVER_… settings of the api and of this command')];
  if (configured === null) return [];
  const current = introduced ?? published;
  if (!hasApprovers(current)) return isSameSet(configured, published) ? [] : [firstSet(configured)];
  if (isSameSet(configured, current) && epochOf(configured) <= epochOf(current)) return [];
  if (trustDomain === null) return [];
  const problem = problemOf({ configured, current, trustDomain });
  if (problem !== null) return [unsigned(problem, Math.max(epochOf(published), epochOf(current)) + 1)];
  const epoch = epochOf(configured);
  if (isSameSet(configured, published) && epoch === epochOf(published)) return [];
  return [info('pki.quorum-change', `the configured approver set is signed for epoch ${epoch}; epoch ${epochOf(published)} is published`)];
}

const firstSet = (configured: QuorumFields): Finding =>
  info(
    'pki.quorum-change',
    `the configured approver set is the first one: machines take it as it comes, or only as pinned (${approverSetDigest(configured)})`,
    'pin it where machines are made: better-compute daemon install-script --approver-set-sha256, bcd join --approver-set-sha256',
  );

/** As a machine that holds the current set judges it, and as the api does before it publishes (H-10). */
function problemOf(set: { configured: QuorumFields; current: QuorumFields; trustDomain: string }): string | null {
  const { configured: to, current: from, trustDomain } = set;
  const epoch = epochOf(to);
  if (epoch <= epochOf(from)) return `its epoch ${epoch} is not above epoch ${epochOf(from)} of the current set`;
  return verifyApproverSetChange({ from, to, epoch, signatures: to.approverSetSignatures, trustDomain }).problem;
}

const unsigned = (problem: string, epoch: number): Finding =>
  warning(
    'pki.quorum-unsigned',
    `the configured approver set differs from the current one and is not signed for a higher epoch: ${problem}; machines that hold approvers keep theirs`,
    `let the current and the new approvers run better-compute batch sign-approvers --epoch ${epoch}, and set pki.approvers.epoch to ${epoch} and setSignatures (BETTER_COMPUTE_APPROVER_SET_SIGNATURES)`,
  );

/** LAG-011: without a published set doctor is silent; pki trust-version counts those nodes all the same (A-PKI-33). */
function judgeLag({ published, lag }: ApproverFacts): Finding[] {
  if (lag === null || lag.behind === 0 || !hasApprovers(published)) return [];
  const nodes = lag.sample.map(({ nodeId, epoch }) => `${nodeId} (epoch ${epoch})`).join(', ');
  return [
    warning(
      'pki.quorum-lag',
      `${lag.behind} of ${lag.connected} connected node(s) enforce another approver set than the published one (epoch ${epochOf(published)}): ${nodes}`,
      "check the set's signatures (pki.quorum-unsigned), or re-pin nodes that missed several changes: bcd join --replace --approver-set-sha256",
    ),
  ];
}
