/** Does the fleet enforce the approver set that is published? Facts from the sessions (LAG-001), by the same rules as every gate. */
import { connectedWithinMs } from '../session/presence.ts';
import type { Verdict } from './gates.ts';

export interface ApproverFleetFacts {
  readonly connected: number;
  /** Enforce another set, or none, or hold the set under another epoch (LAG-007 to LAG-010). */
  readonly behind: number;
  readonly sample: readonly { readonly nodeId: string /** null: it enforces no set. */; readonly epoch: number | null }[];
  /** Newest write of any session row; null when there is none. Old: the writer stalled. */
  readonly lastPresenceWriteAt: number | null;
}

const closed = (reason: string, message: string, behind: readonly string[] = []): Verdict => ({ kind: 'closed', reason, message, behind });

/** Every connected machine enforces the set of this epoch; a gate never passes on an empty fleet (H-01). */
export function judgeApproverFleet(facts: ApproverFleetFacts, { epoch, now }: { epoch: number; now: number }): Verdict {
  const { connected, behind, sample, lastPresenceWriteAt } = facts;
  if (connected === 0) return closed('no-connected-node', `no connected machine confirms the approver set of epoch ${epoch}`);
  if (lastPresenceWriteAt === null || now - lastPresenceWriteAt > connectedWithinMs) {
    return closed('presence-stalled', 'no gateway has written a session row for 2 minutes: what is known of the fleet is old');
  }
  if (behind === 0) return Object.freeze({ kind: 'open' });
  const names = sample.map(({ nodeId, epoch: held }) => `${nodeId} at epoch ${held ?? 0}`);
  return closed(
    'nodes-behind',
    `${behind} of ${connected} connected machine(s) enforce another approver set than epoch ${epoch} (${names.join(', ')})`,
    sample.map(({ nodeId }) => nodeId),
  );
}
