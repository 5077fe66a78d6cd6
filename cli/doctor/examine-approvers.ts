/** Gathers what doctor judges about the approver set: the configuration of this command, what is published, what nodes hold. */
import type { Database } from '../../drizzle/client.ts';
import { lagOf, readNodeSets } from '../../services/approver-lag.ts';
import { readSetChanges } from '../../services/approver-sets.ts';
import { readPublishedQuorum } from '../../services/published-quorum.ts';
import { configuredApprovers } from '../configured-approvers.ts';
import type { Finding } from './finding.ts';
import { type ApproverFacts, judgeApprovers } from './judge-approvers.ts';

export async function examineApprovers(
  db: Database,
  { env, trustDomain }: { env: NodeJS.ProcessEnv; trustDomain: string | null },
): Promise<Finding[]> {
  const published = await readPublishedQuorum(db);
  const sets = await readNodeSets(db);
  return judgeApprovers({
    configured: configuredOrWhy(env),
    published,
    introduced: (await readSetChanges(db)).at(-1) ?? null,
    trustDomain,
    lag: sets === null ? null : lagOf(sets, published),
  });
}

function configuredOrWhy(env: NodeJS.ProcessEnv): ApproverFacts['configured'] {
  try {
    return configuredApprovers(env);
  } catch (cause) {
    return cause as Error;
  }
}
