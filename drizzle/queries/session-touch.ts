/** Presence and what daemons report of themselves, written for many sessions at once; only a session that is open is written. */
import { type Executor, instant, instantOrNull } from '../client.ts';

export interface SessionTouch {
  readonly sessionId: string;
  readonly lastSeenAt: number;
  /** From a StatusReport: only ever raises what is recorded (ROT-019). */
  readonly trustVersion?: number | null;
  readonly daemonVersion?: string;
  readonly approverSet?: ReportedSet;
  readonly sections?: ReportedSections;
}

/** Of a StatusReport: what became of the desired state that the machine holds; sections that are applied are left out. */
export interface ReportedSections {
  readonly generation: number;
  readonly faults: readonly SectionFault[];
}

export interface SectionFault {
  readonly section: string;
  readonly state: 'failed' | 'unsupported';
  /** For people, in the daemon's words. */
  readonly detail: string;
}

/** The approver set of a StatusReport, with the trust version of that same report (LAG-003). */
export interface ReportedSet {
  readonly version: number;
  /** null, as the digest: it holds no approver keys (LAG-005). */
  readonly epoch: number | null;
  readonly sha256: Uint8Array | null;
}

const touch = {
  name: 'session-touch',
  text: `with input as (select t.id, t.seen + coalesce(clock_timestamp() - $7::timestamptz, interval '0') as seen, t.trust_version,
               t.daemon_version, t.set_version, t.set_epoch, t.set_sha256, t.spec_generation, t.faults
             from unnest($1::uuid[], $2::timestamptz[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $8::bigint[], $9::bigint[],
               $10::text[])
             as t(id, seen, trust_version, daemon_version, set_epoch, set_sha256, set_version, spec_generation, faults)),
           present as (update node_presence p set last_seen_at = greatest(p.last_seen_at, t.seen),
               trust_version = greatest(p.trust_version, t.trust_version)
             from input t where p.session_id = t.id returning p.session_id, p.last_seen_at, p.trust_version)
         update node_sessions s set
           last_seen_at = present.last_seen_at,
           trust_version = present.trust_version,
           daemon_version = coalesce(t.daemon_version, s.daemon_version),
           approver_set_epoch = case when t.set_version >= coalesce(present.trust_version, 0)
             then t.set_epoch else s.approver_set_epoch end,
           approver_set_sha256 = case when t.set_version >= coalesce(present.trust_version, 0)
             then t.set_sha256 else s.approver_set_sha256 end,
           spec_generation = coalesce(t.spec_generation, s.spec_generation),
           section_faults = case when t.spec_generation is null then s.section_faults else t.faults::jsonb end
         from present join input t on t.id = present.session_id where s.id = present.session_id
         returning s.id`,
};

/**
 * Writes presence and reports of many sessions in one statement.
 *
 * @param callersNow what the clock says that `lastSeenAt` was taken from: the instants are moved to the database's clock, so that
 *   gateways on hosts whose clocks differ write presence that can be compared; null: they are of that clock already
 * @returns the ids of sessions that have ended meanwhile (a newer one of the node took over, or the node was revoked): the
 *   caller closes them
 */
export async function touchSessions(
  db: Executor,
  touches: readonly SessionTouch[],
  callersNow: number | null = null,
): Promise<{ readonly ended: readonly string[] }> {
  if (touches.length === 0) return { ended: [] };
  const merged = [...mergeTouches(touches).values()];
  const rows = await db.query<{ id: string }>(touch, [
    merged.map((t) => t.sessionId),
    merged.map((t) => instant(t.lastSeenAt)),
    merged.map((t) => t.trustVersion ?? null),
    merged.map((t) => t.daemonVersion ?? null),
    merged.map((t) => t.approverSet?.epoch ?? null),
    merged.map((t) => t.approverSet?.sha256 ?? null),
    instantOrNull(callersNow),
    merged.map((t) => t.approverSet?.version ?? null),
    merged.map((t) => t.sections?.generation ?? null),
    merged.map((t) => (t.sections === undefined || t.sections.faults.length === 0 ? null : JSON.stringify(t.sections.faults))),
  ]);
  const written = new Set(rows.map((row) => row.id));
  return { ended: merged.map((t) => t.sessionId).filter((id) => !written.has(id)) };
}

/** A late older report never pairs an old set with a newer version (LAG-003); of two of one version the later counts. */
export function newerSet(earlier: ReportedSet | undefined, later: ReportedSet | undefined): { readonly approverSet?: ReportedSet } {
  const newer = later === undefined || (earlier !== undefined && earlier.version > later.version) ? earlier : later;
  return newer === undefined ? {} : { approverSet: newer };
}

/** UPDATE … FROM takes one of several rows for the same session, any one: so there is one. */
function mergeTouches(touches: readonly SessionTouch[]): Map<string, SessionTouch> {
  const merged = new Map<string, SessionTouch>();
  for (const next of touches) {
    const last = merged.get(next.sessionId);
    merged.set(
      next.sessionId,
      last === undefined
        ? next
        : {
            ...last,
            ...next,
            lastSeenAt: Math.max(last.lastSeenAt, next.lastSeenAt),
            trustVersion: Math.max(last.trustVersion ?? 0, next.trustVersion ?? 0) || null,
            ...newerSet(last.approverSet, next.approverSet),
          },
    );
  }
  return merged;
}
