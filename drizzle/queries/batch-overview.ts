/** A batch's scope counted by kind and site. The machine of a subject is read from its form (domain/batch/subjects.ts). */
import type { Executor } from '../client.ts';

const machine = `case when s.subject like 'bmc:%' then split_part(substr(s.subject, 5), '/', 1)
                      when s.subject like 'node:%' then substr(s.subject, 6) else s.subject end`;

const bySite = {
  name: 'batch-scope-by-site',
  text: `select s.kind, coalesce(n.site_id, '') as site, count(*)::int as leaves,
           count(distinct nullif(s.payload_sha256, ''))::int as payloads, (count(*) filter (where s.payload_sha256 = ''))::int as unbound
         from command_batch_scope s left join nodes n on n.id = ${machine}
         where s.batch_id = $1 group by 1, 2 order by 1, 2`,
};

const touched = {
  name: 'batch-sites-touched',
  text: `with machines as (select distinct ${machine} as id from command_batch_scope s where s.batch_id = $1),
         sites as (select coalesce(n.site_id, '') as site, count(*)::int as machines
                   from machines m left join nodes n using (id) group by 1)
         select site, machines, (select count(*)::int from nodes n where n.site_id = site and n.state = 'active') as of
         from sites order by machines desc, site`,
};

export interface ScopeBySite {
  readonly kind: string;
  readonly site: string;
  readonly leaves: number;
  readonly payloads: number;
  readonly unbound: number;
}

export const readScopeBySite = (db: Executor, batchId: string): Promise<ScopeBySite[]> => db.query<ScopeBySite>(bySite, [batchId]);

export const readSitesTouched = (db: Executor, batchId: string): Promise<{ site: string; machines: number; of: number }[]> =>
  db.query(touched, [batchId]);
