/**
 * The moves of an enrolment that its workflow makes (XC-036, XC-041): each is one conditional UPDATE from the table, and may be repeated. The one that
 * changes the node, `complete`, is the machine's own: its join makes it (services/join).
 */
import { completesWithinMs, type EnrolmentState, enrolmentMoves, isOver } from '../../domain/enrolment/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { appendAudit } from '../audit.ts';
import { getEnrolment } from './rows.ts';
import type { Enrolment } from './types.ts';

const mint = {
  name: 'enrolments-mint',
  text: `update enrolments set state = $2, csr_sha256 = $3, deadline = $4 where id = $1 and state = any($5::text[]) returning id`,
};
const minted = { name: 'enrolments-minted', text: 'select csr_sha256 as csr from enrolments where id = $1' };

/**
 * From now on the machine with this request may become the node's next generation, and nobody else.
 *
 * @param csrSha256 of the request, as the machine itself said it over a connection to the expected host key
 * @throws INVALID_STATE (enrolment-over), CONFLICT (other-key) for a key other than the one before
 */
export async function mintEnrolment(
  db: Database,
  { id, csrSha256, now }: { readonly id: string; readonly csrSha256: Uint8Array; readonly now: number },
): Promise<Enrolment> {
  return db.transaction(async (tx) => {
    const { from, to } = enrolmentMoves.mint;
    const moved = await tx.query(mint, [id, to, Buffer.from(csrSha256), instant(now + completesWithinMs), from]);
    const enrolment = await getEnrolment(tx, id);
    if (moved.length > 0) {
      const { nodeId, createdBy } = enrolment;
      const details = { enrolment: id, csrSha256: Buffer.from(csrSha256).toString('hex') };
      await appendAudit(
        tx,
        { key: `enrolment/${id}/mint`, actor: createdBy, action: 'node.enrolment-minted', subject: nodeId, details },
        now,
      );
      return enrolment;
    }
    if (isOver(enrolment.state) && enrolment.state !== 'completed') throw over(enrolment);
    const [{ csr } = { csr: new Uint8Array() }] = await tx.query<{ csr: Uint8Array }>(minted, [id]);
    if (Buffer.from(csr ?? []).equals(Buffer.from(csrSha256))) return enrolment;
    throw new ControlError('CONFLICT', `enrolment ${id} was minted for another key than the machine shows now`, {
      details: { reason: 'other-key' },
    });
  });
}

export const over = ({ id, state, endReason }: Enrolment): ControlError =>
  new ControlError('INVALID_STATE', `enrolment ${id} is ${state}${endReason === '' ? '' : `: ${endReason}`}`, {
    details: { reason: 'enrolment-over' },
  });

const end = {
  name: 'enrolments-end',
  text: `update enrolments set state = $2, ended_at = $3, end_reason = $4 where id = $1 and state = any($5::text[]) returning id`,
};

export interface EndInput {
  readonly id: string;
  readonly as: 'fail' | 'cancel';
  readonly reason: string;
  /** Who ended it; default: who ordered it. */
  readonly actor?: string;
  readonly now: number;
}

/** Over, unless the machine was quicker: what it is then. The node is left as it is either way (XC-036). */
export async function endEnrolment(db: Database, { id, as, reason, actor, now }: EndInput): Promise<EnrolmentState> {
  return db.transaction(async (tx) => {
    const { from, to } = enrolmentMoves[as];
    const moved = await tx.query(end, [id, to, instant(now), reason.slice(0, 1_000), from]);
    const enrolment = await getEnrolment(tx, id);
    if (moved.length > 0) {
      const event = {
        key: `enrolment/${id}/end`,
        actor: actor ?? enrolment.createdBy,
        action: as === 'cancel' ? 'node.enrolment-cancelled' : 'node.enrolment-failed',
        subject: enrolment.nodeId,
        details: { enrolment: id, reason: reason.slice(0, 1_000) },
      };
      await appendAudit(tx, event, now);
    }
    return enrolment.state;
  });
}

export interface EnrolmentProgress {
  readonly state: EnrolmentState;
  /** A session of the new identity is open. */
  readonly connected: boolean;
  readonly deadline: number | null;
  readonly generation: number | null;
}

const progress = {
  name: 'enrolments-progress',
  text: `select e.state, e.deadline, n.identity_generation as generation,
           exists (select from node_presence p join node_sessions s on s.id = p.session_id
                     join node_certs c on c.issuer = s.cert_issuer and c.serial = s.cert_serial
                   where p.node_id = e.node_id and s.ended_at is null and p.last_seen_at >= $2
                     and c.generation = coalesce(e.base_generation, 0) + 1) as connected
         from enrolments e left join nodes n on n.id = e.node_id where e.id = $1`,
};

/** @throws NOT_FOUND */
export async function enrolmentProgress(db: Executor, id: string, now: number): Promise<EnrolmentProgress> {
  const [row] = await db.query<EnrolmentProgress>(progress, [id, instant(now - connectedWithinMs)]);
  if (row !== undefined) return row;
  throw new ControlError('NOT_FOUND', `no enrolment is called ${id}`, { details: { reason: 'unknown-enrolment' } });
}
