/**
 * What operators look at: nodes, commands, trust, audit, evidence. Reads only, each one statement over an index; nothing here
 * decides anything, so the console may show it while a gate computes its own facts.
 */
import type { CommandProgress } from '../domain/commands/progress.ts';
import { type CommandState, commandStateName } from '../domain/commands/states.ts';
import { ControlError } from '../domain/errors.ts';
import { connectedWithinMs } from '../domain/session/presence.ts';
import { type Executor, instant } from '../drizzle/client.ts';
import type { SectionFault } from '../drizzle/queries/session-touch.ts';
import { parseStageEvidence, type SignedEvidence } from '../pki/audit/evidence.ts';

export type Reader = Pick<Executor, 'query'>;

export interface NodeView {
  readonly id: string;
  readonly siteId: string;
  readonly role: string;
  readonly state: string;
  readonly generation: number;
  readonly hostname: string;
  readonly createdAt: number;
  readonly connected: boolean;
  readonly session: {
    readonly gatewayId: string;
    readonly epoch: number;
    readonly startedAt: number;
    readonly lastSeenAt: number;
    readonly trustVersion: number | null;
    readonly daemonVersion: string;
    /** Of the desired state that it holds; null: none, or it has not said yet. */
    readonly specGeneration: number | null;
    /** What of it is not applied, and why. */
    readonly sections: readonly SectionFault[];
  } | null;
  /** By any session, also one that has ended; null: it never came. */
  readonly lastSeenAt: number | null;
  readonly certificate: { readonly serial: string; readonly notAfter: number; readonly revokedAt: number | null } | null;
  readonly openCommands: number;
}

const nodeSelect = `
  select n.id, n.site_id, n.role, n.state, n.identity_generation, n.hostname, n.created_at,
         s.gateway_id, s.epoch, s.started_at, s.last_seen_at, s.trust_version, s.daemon_version,
         s.spec_generation, s.section_faults, c.serial, c.not_after, c.revoked_at, l.seen_at,
         (select count(*) from node_commands k where k.node_id = n.id and k.state < 2) as open_commands
    from nodes n
    left join lateral (select * from node_sessions where node_id = n.id and ended_at is null order by epoch desc limit 1) s on true
    left join lateral (select greatest(last_seen_at, ended_at) as seen_at from node_sessions where node_id = n.id
                        order by epoch desc limit 1) l on true
    left join lateral (select * from node_certs where node_id = n.id and cert_der is not null
                        order by generation desc, issued_at desc limit 1) c on true`;

/** Nodes after `after` in order of id. */
export async function listNodes(
  db: Reader,
  page: { after: string; limit: number; now: number; state?: string | undefined },
): Promise<NodeView[]> {
  const rows = await db.query<Row>(
    { text: `${nodeSelect} where n.id > $1 and ($2::text is null or n.state = $2) order by n.id limit $3` },
    [page.after, page.state ?? null, page.limit],
  );
  return rows.map((row) => toNode(row, page.now));
}

/** @throws NOT_FOUND */
export async function getNode(db: Reader, nodeId: string, now: number): Promise<NodeView> {
  const rows = await db.query<Row>({ text: `${nodeSelect} where n.id = $1` }, [nodeId]);
  if (rows[0] === undefined)
    throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, { details: { reason: 'unknown-node', nodeId } });
  return toNode(rows[0], now);
}

export interface CommandView {
  readonly id: string;
  readonly nodeId: string;
  readonly seq: number;
  readonly kind: string;
  readonly state: CommandState;
  readonly requestedBy: string;
  readonly createdAt: number;
  readonly deadline: number;
  readonly batchId: string | null;
  /** Held: it waits for its batch (BAT-018). */
  readonly awaitingApproval?: true;
  /** When it is due; absent while it is held, and for one that is due at once. */
  readonly notBefore?: number;
  readonly ackedAt: number | null;
  readonly finishedAt: number | null;
  readonly rejectReason: string | null;
  readonly signerRoot: string;
  /** What its node said last of how far it is; absent when it has said nothing. */
  readonly progress?: CommandProgress;
  readonly result: { readonly outcome: number; readonly errorCode: string; readonly errorMessage: string; readonly payload: string } | null;
}

const commandSelect = `
  select c.id, c.node_id, c.seq, c.kind, c.state, c.requested_by, c.created_at, c.deadline, c.acked_at, c.finished_at,
         c.reject_reason, c.signer_root, c.batch_id, c.not_before, r.outcome, r.error_code, r.error_message, r.payload,
         p.done, p.total, p.note, p.at, p.first_done, p.first_at
    from node_commands c left join node_results r on r.command_id = c.id left join command_progress p on p.command_id = c.id`;

/**
 * The command of that id, or every command of the workflow of that id (command ids begin with their workflow's).
 *
 * @throws NOT_FOUND
 */
export async function getCommands(
  db: Reader,
  id: string,
  { limit, tenants = 'all' }: { readonly limit: number; readonly tenants?: readonly string[] | 'all' },
): Promise<CommandView[]> {
  const mine = `$4::text[] is null or c.node_id in (select n.id from nodes n where n.tenant_id = any($4))`;
  const rows = await db.query<Row>(
    { text: `${commandSelect} where (c.id = $1 or starts_with(c.id, $2)) and (${mine}) order by c.id limit $3` },
    [id, `${id}/`, limit, tenants === 'all' ? null : tenants],
  );
  if (rows.length === 0)
    throw new ControlError('NOT_FOUND', `no command is called ${id}`, { details: { reason: 'unknown-command', commandId: id } });
  return rows.map(toCommand);
}

/** Active nodes that no gateway has seen within the time that counts as connected; those with commands waiting first. */
export async function listAbsentNodes(db: Reader, page: { now: number; limit: number }): Promise<AbsentNode[]> {
  const rows = await db.query<Row>(
    {
      text: `select n.id, max(coalesce(s.ended_at, s.last_seen_at)) as seen_at, n.created_at,
            (select count(*) from node_commands k where k.node_id = n.id and k.state < 2) as open_commands
       from nodes n left join node_sessions s on s.node_id = n.id
      where n.state = 'active'
      group by n.id
     having not bool_or(s.id is not null and s.ended_at is null and s.last_seen_at >= $1)
      order by open_commands desc, seen_at nulls first, n.id limit $2`,
    },
    [instant(page.now - connectedWithinMs), page.limit],
  );
  return rows.map((row) => ({ id: row.id, seenAt: row.seen_at, createdAt: row.created_at, openCommands: row.open_commands }));
}

export interface AbsentNode {
  readonly id: string;
  readonly seenAt: number | null;
  readonly createdAt: number;
  readonly openCommands: number;
}

export interface TrustView {
  readonly version: number;
  readonly digest: string;
  readonly roots: readonly string[];
  readonly publishedAt: number;
  readonly publishedBy: string;
  readonly connected: number;
  /** Connected nodes that hold less than the published version. */
  readonly behind: number;
}

/** @throws NOT_FOUND before the first publication (CLI-072) */
export async function getTrust(db: Reader, now: number): Promise<TrustView> {
  const rows = await db.query<Row>(
    {
      text: `select t.version, t.digest, t.roots, t.published_at, t.published_by,
            count(s.node_id) as connected, count(s.node_id) filter (where coalesce(s.trust_version, 0) < t.version) as behind
       from trust_bundle_state t
       left join node_sessions s on s.ended_at is null and s.last_seen_at >= $1
      where t.version > 0
      group by t.id`,
    },
    [instant(now - connectedWithinMs)],
  );
  const [row] = rows;
  if (row === undefined)
    throw new ControlError('NOT_FOUND', 'no process has published a trust bundle yet', { details: { reason: 'nothing-published' } });
  return {
    version: row.version,
    digest: row.digest,
    roots: row.roots,
    publishedAt: row.published_at,
    publishedBy: row.published_by,
    connected: row.connected,
    behind: row.behind,
  };
}

export interface AuditView {
  readonly seq: number;
  readonly at: number;
  readonly actor: string;
  readonly action: string;
  readonly subject: string;
  readonly details: unknown;
  readonly hash: string;
}

/** Events after `after`, in the order of the chain. */
export async function listAudit(db: Reader, page: { after: number; limit: number; subject?: string | undefined }): Promise<AuditView[]> {
  const rows = await db.query<Row>(
    { text: 'select * from audit_events where seq > $1 and ($2::text is null or subject = $2) order by seq limit $3' },
    [page.after, page.subject ?? null, page.limit],
  );
  return rows.map((row) => ({
    seq: row.seq,
    at: row.at,
    actor: row.actor,
    action: row.action,
    subject: row.subject,
    details: row.details,
    hash: row.hash.toString('hex'),
  }));
}

export interface RotationView {
  readonly id: string;
  readonly stages: readonly string[];
  readonly firstAt: number;
  readonly lastAt: number;
}

/** Rotations that left evidence, the newest first. */
export async function listRotations(db: Reader, limit: number): Promise<RotationView[]> {
  const rows = await db.query<Row>(
    {
      text: `select rotation_id, array_agg(stage order by at) as stages, min(at) as first_at, max(at) as last_at
       from rotation_evidence where not starts_with(rotation_id, 'batch/') group by rotation_id order by max(at) desc limit $1`,
    },
    [limit],
  );
  return rows.map((row) => ({ id: row.rotation_id, stages: row.stages, firstAt: row.first_at, lastAt: row.last_at }));
}

/** @throws NOT_FOUND */
export async function getEvidence(db: Reader, rotationId: string): Promise<SignedEvidence[]> {
  const rows = await db.query<Row>({ text: 'select document, signature from rotation_evidence where rotation_id = $1 order by at' }, [
    rotationId,
  ]);
  if (rows.length === 0) {
    throw new ControlError('NOT_FOUND', `rotation ${rotationId} has left no evidence`, {
      details: { reason: 'unknown-rotation', rotationId },
    });
  }
  // Two stages may share a millisecond; the documents number themselves. One that does not parse is the verifier's to report.
  return rows
    .map((row) => ({ document: new Uint8Array(row.document), signature: new Uint8Array(row.signature) }))
    .sort((a, b) => place(a) - place(b));
}

function place({ document }: SignedEvidence): number {
  try {
    return parseStageEvidence(document).sequence;
  } catch {
    return Number.MAX_SAFE_INTEGER;
  }
}

/** A row of the statements above, read here and nowhere else. */
type Row = any;

const toNode = (row: Row, now: number): NodeView => ({
  id: row.id,
  siteId: row.site_id,
  role: row.role,
  state: row.state,
  generation: row.identity_generation,
  hostname: row.hostname,
  createdAt: row.created_at,
  connected: row.gateway_id !== null && now - row.last_seen_at <= connectedWithinMs,
  session:
    row.gateway_id === null
      ? null
      : {
          gatewayId: row.gateway_id,
          epoch: row.epoch,
          startedAt: row.started_at,
          lastSeenAt: row.last_seen_at,
          trustVersion: row.trust_version,
          daemonVersion: row.daemon_version,
          specGeneration: row.spec_generation,
          sections: row.section_faults ?? [],
        },
  lastSeenAt: row.seen_at,
  certificate: row.serial === null ? null : { serial: row.serial, notAfter: row.not_after, revokedAt: row.revoked_at },
  openCommands: row.open_commands,
});

const toProgress = ({ done, total, note, at, first_done: firstDone, first_at: firstAt }: Row): CommandProgress => ({
  done,
  total,
  note,
  at,
  firstDone,
  firstAt,
});

const toCommand = (row: Row): CommandView => ({
  id: row.id,
  nodeId: row.node_id,
  seq: row.seq,
  kind: row.kind,
  state: commandStateName(row.state) ?? 'open',
  requestedBy: row.requested_by,
  createdAt: row.created_at,
  deadline: row.deadline,
  batchId: row.batch_id,
  ...(row.not_before === Infinity && row.state === 0 ? { awaitingApproval: true as const } : {}),
  ...(Number.isFinite(row.not_before) ? { notBefore: row.not_before } : {}),
  ackedAt: row.acked_at,
  finishedAt: row.finished_at,
  rejectReason: row.reject_reason,
  signerRoot: row.signer_root,
  ...(row.at === null ? {} : { progress: toProgress(row) }),
  result:
    row.outcome === null
      ? null
      : {
          outcome: row.outcome,
          errorCode: row.error_code,
          errorMessage: row.error_message,
          payload: row.payload?.toString('base64') ?? '',
        },
});
