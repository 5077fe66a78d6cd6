/** What a batch would touch, for people who decide: by kind and site, and which share of each site (pictures of the approval page). */
import type { Executor } from '../../drizzle/client.ts';
import { readScopeBySite, readSitesTouched } from '../../drizzle/queries/batch-overview.ts';

export interface BatchOverview {
  /** Distinct machines that the leaves act on or through. */
  readonly machines: number;
  readonly scope: readonly ScopeRow[];
  readonly sites: readonly SiteRow[];
}

export interface ScopeRow {
  readonly kind: string;
  /** Empty: the machine is no node any more. */
  readonly site: string;
  readonly leaves: number;
  readonly payloads: number;
  /** Leaves that admit any payload. */
  readonly unbound: number;
}

export interface SiteRow {
  readonly site: string;
  readonly machines: number;
  /** Active machines of the site. */
  readonly of: number;
}

export async function readBatchOverview(db: Executor, batchId: string): Promise<BatchOverview> {
  const [scope, sites] = await Promise.all([readScopeBySite(db, batchId), readSitesTouched(db, batchId)]);
  return { machines: sites.reduce((sum, { machines }) => sum + machines, 0), scope, sites };
}
