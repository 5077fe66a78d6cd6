/** What a batch would touch, at a glance: scope by kind and site, and which share of each site. For people; reads only. */
import type { Executor } from '../../drizzle/client.ts';
import { readScopeBySite, readSitesTouched, type ScopeBySite } from '../../drizzle/queries/batch-overview.ts';

export interface ScopeOverview {
  /** Distinct machines. */
  readonly machines: number;
  readonly scope: readonly ScopeBySite[];
  /** `of`: active machines of the site. */
  readonly sites: readonly { readonly site: string; readonly machines: number; readonly of: number }[];
}

/** Empty for a batch that is not there. */
export async function readOverview(db: Executor, batchId: string): Promise<ScopeOverview> {
  const [scope, sites] = [await readScopeBySite(db, batchId), await readSitesTouched(db, batchId)];
  return { machines: sites.reduce((sum, { machines }) => sum + machines, 0), scope, sites };
}
