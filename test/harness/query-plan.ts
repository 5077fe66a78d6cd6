/** How PostgreSQL carries out a statement, as a flat list of its steps: for tests of what an index is for. */
import type { Executor } from '../../drizzle/client.ts';

export interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly PlanNode[];
}

const flatten = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(flatten)];

/** Carries it out, and says how. With a name it is prepared, as a named statement of ours is. */
export async function planOf(
  db: Pick<Executor, 'query'>,
  statement: { readonly name?: string; readonly text: string },
  values: unknown[],
): Promise<PlanNode[]> {
  const text = `explain (analyze, format json, timing off) ${statement.text}`;
  const [told] = await db.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>({ ...statement, text }, values);
  if (told === undefined) throw new Error('no plan was told');
  return flatten(told['QUERY PLAN'][0].Plan);
}
