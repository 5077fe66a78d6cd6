/** Sections of desired state that connected machines could not apply: what the machine was told and does not do. Claims of the machines. */
import { connectedWithinMs } from '../domain/session/presence.ts';
import { type Executor, instant } from '../drizzle/client.ts';

export interface FailedSection {
  readonly nodeId: string;
  readonly section: string;
  readonly detail: string;
  /** Of the desired state that it holds. */
  readonly generation: number;
}

const failed = {
  name: 'failed-sections',
  text: `select s.node_id as "nodeId", f.fault->>'section' as section, f.fault->>'detail' as detail, s.spec_generation as generation
         from node_sessions s, jsonb_array_elements(s.section_faults) f(fault)
         where s.ended_at is null and s.section_faults @> '[{"state":"failed"}]' and s.last_seen_at >= $1 and f.fault->>'state' = 'failed'
         order by s.node_id, section limit $2`,
};

/** In the order of their nodes; sections that a machine's daemon does not know, or its owner does not let it act on, are none of these. */
export const listFailedSections = (db: Pick<Executor, 'query'>, page: { now: number; limit: number }): Promise<FailedSection[]> =>
  db.query<FailedSection>(failed, [instant(page.now - connectedWithinMs), page.limit]);
