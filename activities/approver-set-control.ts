/**
 * The steps of a change of the approver set. They need no key: what gives a change its force are the signatures of the approvers, which
 * are verified here, again where it is stored, and by every machine (H-10, APPR-008).
 */

import { ControlError } from '../domain/errors.ts';
import { judgeApproverFleet } from '../domain/rotation/approver-set-gate.ts';
import type { Verdict } from '../domain/rotation/gates.ts';
import { validateQuorum, verifyApproverSetChange } from '../pki/quorum/index.ts';
import { approverSetDigest, type QuorumFields } from '../pki/trust/index.ts';
import { kidOf } from '../pki/x509/index.ts';
import { assertOverrideApproved, type OverrideApproval } from '../services/override-approval.ts';
import type { ApproverSetPorts, ApproverSetSigningPorts } from './approver-set-ports.ts';
import { translatedForHolder } from './failures.ts';
import { currentWait, notYet } from './not-yet.ts';
import { answer, type GateReport, readOverrides } from './rotation-gates.ts';
import type { OverrideRow } from './rotation-ports.ts';

/** As it is written down and signed; `approvers` are SPKI in base64. */
export interface ApproverChange {
  readonly epoch: number;
  readonly approvers: readonly string[];
  readonly threshold: number;
  readonly tiers: readonly { readonly maxScopeSize: number; readonly threshold: number }[];
  readonly unbatchedPerHour: number;
  readonly signatures: readonly { readonly kid: string; readonly sig: string }[];
}

export interface ApproverOrder {
  readonly rotationId: string;
  readonly change: ApproverChange;
}

export interface ApproverPlanned {
  readonly from: { readonly epoch: number; readonly sha256: string | null; readonly approvers: number; readonly threshold: number };
  readonly to: { readonly epoch: number; readonly sha256: string | null; readonly approvers: number; readonly threshold: number };
  readonly byOld: readonly string[];
  readonly byNew: readonly string[];
}

export interface ApproverSetActivities {
  planApproverSet(input: ApproverOrder): Promise<ApproverPlanned>;
  storeApproverSet(input: ApproverOrder & { actor: string }): Promise<void>;
  awaitApproverPublication(input: ApproverOrder & { patienceMs: number | null }): Promise<GateReport>;
  awaitApproverFleet(input: ApproverOrder & { version: number; patienceMs: number | null }): Promise<GateReport>;
  recordApproverOverride(
    input: Omit<OverrideRow, 'at'> & { rotationId: string; approvals?: readonly OverrideApproval[] },
  ): Promise<OverrideRow>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export interface ApproverSetSigningActivities {
  recordApproverSet(input: { rotationId: string; epoch: number; actor: string }): Promise<void>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));

/** @throws INVALID_CONFIG for what cannot be a set */
export function quorumOfChange({ epoch, approvers, threshold, tiers, unbatchedPerHour, signatures }: ApproverChange): QuorumFields {
  return validateQuorum({
    approverKeys: approvers.map((spki) => ({ kid: kidOf(bytes(spki)), spki: bytes(spki) })),
    approverThreshold: threshold,
    tiers,
    unbatchedDestructivePerHour: unbatchedPerHour,
    approverSetSignatures: signatures.map(({ kid, sig }) => ({ kid, sig: new Uint8Array(Buffer.from(sig, 'base64url')) })),
    approverSetEpoch: epoch,
  });
}

/** null: a set without keys, which nobody enforces. */
const digestOf = (quorum: QuorumFields): string | null => (quorum.approverKeys.length === 0 ? null : approverSetDigest(quorum));

const shown = (quorum: QuorumFields): ApproverPlanned['from'] => ({
  epoch: Number(quorum.approverSetEpoch),
  sha256: digestOf(quorum),
  approvers: quorum.approverKeys.length,
  threshold: quorum.approverThreshold,
});

export function createApproverSetActivities(ports: ApproverSetPorts): ApproverSetActivities {
  const { sets } = ports;
  return translatedForHolder<ApproverSetActivities>({
    async planApproverSet({ change }) {
      const to = quorumOfChange(change);
      const from = await sets.introduced();
      // A run that was terminated behind its store is taken up: the change is there.
      if (isSame(from, to)) return { from: shown(from), to: shown(to), byOld: [], byNew: [] };
      return { from: shown(from), to: shown(to), ...assertSigned(ports, { from, to, epoch: change.epoch }) };
    },

    async storeApproverSet({ rotationId, change, actor }) {
      await refuseAborted(ports, rotationId);
      await sets.store({ quorum: quorumOfChange(change), actor: actor === '' ? 'rotate-approver-set' : actor });
    },

    async awaitApproverPublication({ change, patienceMs }) {
      const { quorum, version } = await sets.published();
      const verdict: Verdict = isSame(quorum, quorumOfChange(change))
        ? { kind: 'open' }
        : {
            kind: 'closed',
            reason: 'not-published',
            message: `trust version ${version} still carries the approver set of epoch ${Number(quorum.approverSetEpoch)}: the api publishes the next one`,
            behind: [],
          };
      return answer({ verdict, trustVersion: version, count: 0 }, { wait: currentWait(), patienceMs, now: ports.now() });
    },

    async awaitApproverFleet({ rotationId, change, version, patienceMs }) {
      const overrides = await readOverrides(ports, rotationId);
      const facts = await sets.fleet({ epoch: change.epoch, sha256: digestOf(quorumOfChange(change)), excluded: overrides.excluded });
      const judged = judgeApproverFleet(facts, { epoch: change.epoch, now: await sets.clock() });
      const verdict: Verdict = overrides.isForced('fleet') ? { kind: 'open' } : judged;
      return answer({ verdict, trustVersion: version, count: facts.behind }, { wait: currentWait(), patienceMs, now: ports.now() });
    },

    /** H-08, by the set that is published at that moment. */
    async recordApproverOverride({ rotationId, kind, subject, actor, reason, approvals = [] }) {
      if (kind === 'exclude' && !(await ports.overrides.nodeExists(subject)))
        throw new ControlError('NOT_FOUND', `no node ${subject} is known`, { details: { reason: 'unknown-node' } });
      const approvedBy = await assertOverrideApproved(ports.quorum, { rotationId, kind, subject, reason, approvals });
      return ports.overrides.recordOverride({
        rotationId,
        override: { kind, subject, actor, reason },
        details: { approvedBy: [...approvedBy] },
      });
    },
  });
}

export const createApproverSetSigningActivities = ({ evidence }: ApproverSetSigningPorts): ApproverSetSigningActivities =>
  translatedForHolder<ApproverSetSigningActivities>({
    recordApproverSet: ({ rotationId, epoch, actor }) => evidence.write({ rotationId, epoch, actor: actor === '' ? 'system' : actor }),
  });

const isSame = (a: QuorumFields, b: QuorumFields): boolean =>
  Number(a.approverSetEpoch) === Number(b.approverSetEpoch) && approverSetDigest(a) === approverSetDigest(b);

/** Old threshold, new threshold, a higher epoch: told at once, before anything is stored. */
function assertSigned(
  { quorum }: ApproverSetPorts,
  change: { from: QuorumFields; to: QuorumFields; epoch: number },
): Pick<ApproverPlanned, 'byOld' | 'byNew'> {
  const held = Number(change.from.approverSetEpoch);
  if (change.epoch <= held) {
    throw new ControlError(
      'INVALID_STATE',
      `the change is signed for epoch ${change.epoch}, epoch ${held} is in force: let it be signed for ${held + 1}`,
      {
        details: { reason: 'stale-epoch' },
      },
    );
  }
  const { byOld, byNew, problem } = verifyApproverSetChange({
    ...change,
    signatures: change.to.approverSetSignatures,
    trustDomain: quorum.trustDomain(),
  });
  if (problem === null) return { byOld, byNew };
  throw new ControlError('INVALID_STATE', `the approver set of epoch ${change.epoch} cannot be published: ${problem}`, {
    details: {
      reason: 'approver-set-unsigned',
      hint: `the current and the new approvers run: better-compute batch sign-approvers --epoch ${change.epoch}`,
    },
  });
}

async function refuseAborted(ports: ApproverSetPorts, rotationId: string): Promise<void> {
  const { abort } = await readOverrides(ports, rotationId);
  if (abort !== undefined)
    notYet({ reason: 'abort-recorded', message: `${abort.actor} aborts this change: nothing is stored` }, currentWait());
}
