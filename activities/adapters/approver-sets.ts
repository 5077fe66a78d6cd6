/** The ports of a change of the approver set over PostgreSQL (services/approver-sets). */
import type { Database } from '../../drizzle/client.ts';
import { approverFleetFacts } from '../../drizzle/queries/approver-fleet.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { noQuorum } from '../../pki/trust/index.ts';
import { publishApproverSet, readSetChanges } from '../../services/approver-sets.ts';
import { quorumOfBytes } from '../../services/published-quorum.ts';
import type { ApproverSetsPort } from '../approver-set-ports.ts';

export interface ApproverSetsOptions {
  readonly db: Database;
  /** Of this process's own configuration. */
  readonly trustDomain: () => string;
}

export const createApproverSets = ({ db, trustDomain }: ApproverSetsOptions): ApproverSetsPort => ({
  published: async () => {
    const published = await publishedTrust(db);
    return published === null ? { quorum: noQuorum, version: 0 } : { quorum: quorumOfBytes(published.body), version: published.version };
  },
  introduced: async () => (await readSetChanges(db)).at(-1) ?? noQuorum,
  store: async ({ quorum, actor }) =>
    void (await publishApproverSet(db, { quorum, actor }, { now: await databaseNow(db), trustDomain: trustDomain() })),
  fleet: (expected) => approverFleetFacts(db, expected),
  clock: () => databaseNow(db),
});
