/**
 * Sessions: who is connected where, fenced by an epoch a node. Opening a session ends the node's earlier one and raises the
 * epoch in the same transaction; every later write of a session carries its epoch and touches nothing once a newer session
 * exists (B51, B52).
 *
 * A session opens only for a certificate that has its row: issued to this node, of its current generation, not revoked. So
 * neither a serial that was signed but never stored, nor one that was revoked before this gateway heard of it, gets in.
 */
import { ControlError } from '../../domain/errors.ts';
import { type Database, type Executor, instant } from '../client.ts';
import { runChannel } from './channels.ts';
import { lockNode, type NodeFacts, writeCapabilityLabels } from './nodes.ts';

export { connectedNodeVersions, fleetFacts } from './fleet.ts';

export interface NewSession {
  /** A UUID. */
  readonly sessionId: string;
  readonly nodeId: string;
  readonly gatewayId: string;
  readonly role: string;
  /** Hex SHA-256 over the SPKI of the authority that signed the leaf. */
  readonly certIssuer: string;
  /** As parsed: lower-case hex. */
  readonly certSerial: string;
  readonly peer: string;
  readonly bootId: string;
  readonly daemonVersion: string;
  readonly protoMax: number;
  readonly capabilities: readonly string[];
  /** What Hello said, as it came (A-PKI-35); null when it says nothing. */
  readonly trustVersion: number | null;
  /** The highest epoch the daemon has taken; it takes no command of a lower one. Default 0. */
  readonly epochSeen?: number;
  readonly approverSetEpoch?: number | null;
  readonly approverSetSha256?: Uint8Array | null;
  /** null: the database's own clock, which presence is written and judged by. A number puts a time of one's own in its place. */
  readonly now: number | null;
}

export interface OpenedSession {
  readonly epoch: number;
  /** Highest log position the node has acknowledged. */
  readonly ackedSeq: number;
  readonly identityGeneration: number;
}

interface CertRow {
  readonly nodeId: string;
  readonly generation: number;
  readonly revokedAt: number | null;
  readonly readAt: number;
}

const findCertificate = {
  name: 'session-certificate',
  text: `select node_id as "nodeId", generation, revoked_at as "revokedAt", clock_timestamp() as "readAt" from node_certs
         where issuer = $1 and serial = $2 and cert_der is not null`,
};
/** A restored database is behind by far less, and whoever holds a node's key must not use the numbers up. */
const epochsBelieved = 1_000_000;
/** Above what the database knows and what the daemon has seen: after a restore, the database is the one that is behind. */
const raiseEpoch = {
  name: 'session-raise-epoch',
  text: `insert into node_queue as q (node_id, epoch, owner_gateway, owner_since, generation)
           values ($1, case when $5::bigint <= ${epochsBelieved} then $5::bigint else 0 end + 1, $2, $3, $4)
         on conflict (node_id) do update set
           epoch = greatest(q.epoch, case when $5::bigint <= q.epoch + ${epochsBelieved} then $5::bigint else 0 end) + 1,
           owner_gateway = excluded.owner_gateway, owner_since = excluded.owner_since
         returning q.epoch, q.acked_seq as "ackedSeq"`,
};
/** Presence before sessions: every writer of both takes their locks in this order. */
const takePresence = {
  name: 'session-presence',
  text: `insert into node_presence as p (node_id, session_id, last_seen_at, trust_version) values ($1, $2, $3, $4)
         on conflict (node_id) do update set session_id = excluded.session_id, last_seen_at = excluded.last_seen_at,
           trust_version = excluded.trust_version`,
};
const endEarlier = {
  name: 'session-end-earlier',
  text: `update node_sessions set ended_at = $2, end_reason = 'superseded' where node_id = $1 and ended_at is null`,
};
/** Only machines that somebody works on are spoken of: commits that notify come one after another, and fleets arrive at once. */
const insertSession = {
  name: 'session-insert',
  text: `with opened as (insert into node_sessions (id, node_id, gateway_id, epoch, role, cert_issuer, cert_serial, peer, boot_id, started_at,
             last_seen_at, daemon_version, proto_max, capabilities, trust_version, approver_set_epoch, approver_set_sha256)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12, $13, $14, $15, $16))
         select pg_notify('${runChannel}', r.id) from metal_runs r where r.machine_id = $2 and r.state = 'open'`,
};

function refuse(code: 'PERMISSION_DENIED' | 'REVOKED' | 'INVALID_STATE', reason: string, message: string): never {
  throw new ControlError(code, message, { details: { reason } });
}

function checkNode(node: NodeFacts | undefined, session: NewSession): NodeFacts {
  if (node === undefined) return refuse('PERMISSION_DENIED', 'unknown-node', `node ${session.nodeId} is not known here`);
  if (node.state === 'revoked') return refuse('REVOKED', 'node-revoked', `node ${node.id} was revoked`);
  if (node.state !== 'active') return refuse('PERMISSION_DENIED', 'node-not-active', `node ${node.id} is ${node.state}`);
  if (node.role !== session.role)
    return refuse('PERMISSION_DENIED', 'wrong-role', `node ${node.id} has role ${node.role}, not ${session.role}`);
  return node;
}

function checkCertificate(cert: CertRow | undefined, node: NodeFacts, session: NewSession): CertRow {
  const name = `certificate ${session.certSerial}`;
  if (cert === undefined) return refuse('PERMISSION_DENIED', 'unknown-certificate', `${name} was not issued here`);
  if (cert.nodeId !== node.id) return refuse('PERMISSION_DENIED', 'foreign-certificate', `${name} belongs to another node than ${node.id}`);
  if (cert.revokedAt !== null) return refuse('REVOKED', 'certificate-revoked', `${name} was revoked`);
  if (cert.generation !== node.identityGeneration) {
    return refuse(
      'INVALID_STATE',
      'generation-superseded',
      `${name} is of identity generation ${cert.generation}, node ${node.id} is at ${node.identityGeneration}`,
    );
  }
  return cert;
}

/**
 * Opens a node's session.
 *
 * @throws PERMISSION_DENIED, REVOKED or INVALID_STATE (generation-superseded), with a reason, when node or certificate may not
 */
export function openSession(db: Database, session: NewSession): Promise<OpenedSession> {
  return db.transaction(async (tx) => {
    const node = checkNode(await lockNode(tx, session.nodeId), session);
    const [cert] = await tx.query<CertRow>(findCertificate, [session.certIssuer, session.certSerial]);
    const { readAt } = checkCertificate(cert, node, session);
    const openedAt = session.now ?? readAt;
    const now = instant(openedAt);
    const [queue] = await tx.query<{ epoch: number; ackedSeq: number }>(raiseEpoch, [
      node.id,
      session.gatewayId,
      now,
      node.identityGeneration,
      session.epochSeen ?? 0,
    ]);
    const { epoch, ackedSeq } = queue as { epoch: number; ackedSeq: number };
    await tx.query(takePresence, [node.id, session.sessionId, now, session.trustVersion]);
    await tx.query(endEarlier, [node.id, now]);
    await tx.query(insertSession, sessionValues(session, epoch, now));
    await writeCapabilityLabels(tx, { nodeId: node.id, capabilities: session.capabilities, now: openedAt });
    return { epoch, ackedSeq, identityGeneration: node.identityGeneration };
  });
}

const sessionValues = (s: NewSession, epoch: number, now: Date): unknown[] => [
  s.sessionId,
  s.nodeId,
  s.gatewayId,
  epoch,
  s.role,
  s.certIssuer,
  s.certSerial,
  s.peer,
  s.bootId,
  now,
  s.daemonVersion,
  s.protoMax,
  s.capabilities,
  s.trustVersion,
  s.approverSetEpoch ?? null,
  s.approverSetSha256 ?? null,
];

const end = {
  name: 'session-end',
  text: `with gone as (delete from node_presence where session_id = $1 returning session_id)
         update node_sessions set ended_at = $2, end_reason = $3
         where id = $1 and ended_at is null and (select count(*) from gone) >= 0`,
};

/** Ends a session; one that was ended already stays as it was. */
export async function endSession(
  db: Executor,
  input: { readonly sessionId: string; readonly reason: string; readonly now: number },
): Promise<void> {
  await db.query(end, [input.sessionId, instant(input.now), input.reason]);
}

const endAllOf = {
  name: 'session-end-gateway',
  text: `with open as (select id from node_sessions where gateway_id = $1 and ended_at is null),
           gone as (delete from node_presence where session_id in (select id from open) returning session_id)
         update node_sessions set ended_at = $2, end_reason = $3
         where id in (select id from open) and ended_at is null and (select count(*) from gone) >= 0 returning id`,
};

/** Ends what a gateway left open when it died; it calls this before it listens. @returns how many */
export async function endSessionsOf(
  db: Executor,
  input: { readonly gatewayId: string; readonly reason: string; readonly now: number },
): Promise<number> {
  return (await db.query(endAllOf, [input.gatewayId, instant(input.now), input.reason])).length;
}

export interface SessionRow {
  readonly sessionId: string;
  readonly nodeId: string;
  readonly gatewayId: string;
  readonly epoch: number;
  readonly certIssuer: string;
  readonly certSerial: string;
  readonly startedAt: number;
  readonly lastSeenAt: number;
  readonly trustVersion: number | null;
  readonly daemonVersion: string;
}

const sessionColumns = `id as "sessionId", node_id as "nodeId", gateway_id as "gatewayId", epoch, cert_issuer as "certIssuer",
  cert_serial as "certSerial", started_at as "startedAt", last_seen_at as "lastSeenAt", trust_version as "trustVersion",
  daemon_version as "daemonVersion"`;

const openOfGateway = {
  name: 'sessions-of-gateway',
  text: `select ${sessionColumns} from node_sessions where gateway_id = $1 and ended_at is null order by node_id`,
};
const openOfNode = {
  name: 'sessions-of-node',
  text: `select ${sessionColumns} from node_sessions where node_id = $1 and ended_at is null`,
};

export const openSessionsOf = (db: Executor, gatewayId: string): Promise<SessionRow[]> => db.query<SessionRow>(openOfGateway, [gatewayId]);

/** The open session of a node, connected or not (presence is the caller's question). */
export async function findOpenSession(db: Executor, nodeId: string): Promise<SessionRow | undefined> {
  return (await db.query<SessionRow>(openOfNode, [nodeId]))[0];
}
