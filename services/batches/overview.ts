/** What a batch would touch, at a glance: scope by kind and site, and which share of each site. For people; reads only. */
import { machineOfSubject, parseSubject } from '../../domain/batch/subjects.ts';
import type { Executor } from '../../drizzle/client.ts';

export interface ScopeOverview {
  /** Distinct machines. */
  readonly machines: number;
  readonly scope: readonly {
    readonly kind: string;
    readonly site: string;
    readonly leaves: number;
    /** Distinct payloads that leaves are bound to. */
    readonly payloads: number;
    /** Leaves that admit any payload. */
    readonly unbound: number;
  }[];
  /** `of`: active machines of the site. */
  readonly sites: readonly { readonly site: string; readonly machines: number; readonly of: number }[];
}

const leaves = {
  name: 'batches-overview',
  text: `select kind, subject, encode(payload_sha256, 'hex') as digest from command_batch_scope where batch_id = $1`,
};
const sitesOf = { name: 'batches-overview-sites', text: 'select id, site_id as site from nodes where id = any($1::text[])' };
const sizes = {
  name: 'batches-overview-sizes',
  text: `select site_id as site, count(*) as active from nodes where state = 'active' and site_id = any($1::text[]) group by 1`,
};

const unknownSite = '(unknown)';

/** Empty for a batch that is not there. */
export async function readOverview(db: Executor, batchId: string): Promise<ScopeOverview> {
  const rows = (await db.query<{ kind: string; subject: string; digest: string }>(leaves, [batchId])).map((row) => {
    const subject = parseSubject(row.subject);
    return { ...row, machine: subject === null ? row.subject : machineOfSubject(subject) };
  });
  const machines = [...new Set(rows.map(({ machine }) => machine))];
  const siteOf = new Map((await db.query<{ id: string; site: string }>(sitesOf, [machines])).map(({ id, site }) => [id, site]));
  const site = (machine: string): string => siteOf.get(machine) ?? unknownSite;
  const groups = groupBy(rows, ({ kind, machine }) => JSON.stringify([kind, site(machine)]));
  const bySite = groupBy(machines, site);
  const active = await db.query<{ site: string; active: number }>(sizes, [[...bySite.keys()]]);
  return {
    machines: machines.length,
    scope: [...groups].sort(byName).map(([key, own]) => {
      const [kind, at] = JSON.parse(key) as [string, string];
      const digests = own.map(({ digest }) => digest).filter((digest) => digest !== '');
      return { kind, site: at, leaves: own.length, payloads: new Set(digests).size, unbound: own.length - digests.length };
    }),
    sites: [...bySite].sort(byName).map(([name, own]) => ({
      site: name,
      machines: own.length,
      of: active.find((row) => row.site === name)?.active ?? own.length,
    })),
  };
}

const byName = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number => (a < b ? -1 : Number(a > b));

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}
