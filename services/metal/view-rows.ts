/** What the statements of operators' views share: whose rows are seen, and how far a command is. */
import type { CommandProgress } from '../../domain/commands/progress.ts';
import type { Executor } from '../../drizzle/client.ts';
import type { SeenTenants } from './view-types.ts';

export type Reader = Pick<Executor, 'query'>;

/** A row of such a statement, read beside it and nowhere else. */
export type Row = any;

/** A condition on the node `n`; its first value is tenantsOf. */
export const seen = '($1::text[] is null or n.tenant_id = any($1))';
export const tenantsOf = (tenants: SeenTenants): readonly string[] | null => (tenants === 'all' ? null : tenants);

export const toProgress = ({ done, total, note, at, first_done: firstDone, first_at: firstAt }: Row): CommandProgress => ({
  done,
  total,
  note,
  at,
  firstDone,
  firstAt,
});
