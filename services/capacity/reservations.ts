/**
 * Reservations: what a tenant's instance may hold of a node (SIGN-013, SIGN-014). Made pending by whoever places instances; active when the
 * node's word says that its allocation is bound; ended by whoever placed it. While one is active, its instance runs on that node as far as
 * the broker of workload tokens is concerned (WID-041).
 */
import type { BindingVerdict, ReservationFacts } from '../../domain/capacity/binding.ts';
import { ControlError } from '../../domain/errors.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { workloadSubject } from '../../pki/workload/index.ts';
import { appendAudit } from '../audit.ts';
import { assertTenant } from '../tenants.ts';
import { endInstance, placeInstance } from '../workload-instances.ts';

export interface NewReservation {
  readonly id: string;
  readonly tenantId: string;
  readonly nodeId: string;
  /** The instance that it is for. */
  readonly allocationId: string;
  readonly actor: string;
}

export interface ReservationView extends ReservationFacts {
  readonly id: string;
  readonly tenantId: string;
  readonly activatedAt: number | null;
}

const insert = {
  name: 'reservation-insert',
  text: `insert into reservations (id, tenant_id, node_id, allocation_id, created_at) values ($1, $2, $3, $4, $5)
         on conflict do nothing returning id`,
};

/** @throws INVALID_INPUT for ids that no statement holds; NOT_FOUND for a node or tenant that is not there; CONFLICT when either id is taken */
export async function createReservation(db: Database, reservation: NewReservation, now: number): Promise<void> {
  const { id, tenantId, nodeId, allocationId, actor } = reservation;
  workloadSubject({ tenantId, instanceId: allocationId });
  if (!/^[\x21-\x7e]{1,128}$/.test(id))
    throw new ControlError('INVALID_INPUT', 'the id of a reservation has 1 to 128 printable characters', {
      details: { reason: 'reservation-id' },
    });
  await db.transaction(async (tx) => {
    await assertTenant(tx, tenantId);
    if (!(await readNodeFacts(tx, [nodeId])).has(nodeId))
      throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, { details: { reason: 'unknown-node', nodeId } });
    if ((await tx.query(insert, [id, tenantId, nodeId, allocationId, instant(now)])).length === 0)
      throw new ControlError('CONFLICT', `reservation ${id}, or one for allocation ${allocationId}, is there already`, {
        details: { reason: 'reservation-exists' },
      });
    const details = { node: nodeId, allocation: allocationId };
    await appendAudit(tx, { key: `reservation/${id}`, actor, action: 'reservation.create', subject: id, details, tenant: tenantId }, now);
  });
}

const find = {
  name: 'reservation-find',
  text: `select id, tenant_id as "tenantId", node_id as "nodeId", allocation_id as "allocationId", state, activated_at as "activatedAt"
         from reservations where id = $1`,
};

export const findReservation = async (db: Executor, id: string): Promise<ReservationView | undefined> =>
  (await db.query<ReservationView>(find, [id]))[0];

/** What showed that the allocation is bound: kept, so that anybody can check it again. */
export interface BindingEvidence {
  /** An encoded EventBody. */
  readonly body: Uint8Array;
  /** An encoded Signature. */
  readonly signature: Uint8Array;
  /** Of the row of node_certs whose key signed. */
  readonly certIssuer: string;
  readonly certSerial: string;
}

export interface Activation {
  readonly reservationId: string;
  readonly allocationId: string;
  readonly nodeId: string;
  /** null: by the word of whoever calls. */
  readonly evidence: BindingEvidence | null;
}

/** One statement: the reservation is still the one that was judged, the node active, the certificate its own and valid, or nothing changes. */
const activate = {
  name: 'reservation-activate',
  text: `update reservations r set state = 'active', activated_at = $4, bound_body = $5, bound_signature = $6,
           bound_cert_issuer = $7, bound_cert_serial = $8
         from nodes n
         where r.id = $1 and r.allocation_id = $2 and r.node_id = $3 and r.state = 'pending' and n.id = r.node_id and n.state = 'active'
           and ($7::text is null or exists (
             select from node_certs c where c.issuer = $7 and c.serial = $8 and c.node_id = r.node_id and c.cert_der is not null
               and c.generation = n.identity_generation and c.revoked_at is null and c.not_before <= $4 and c.not_after > $4))
         returning r.tenant_id as "tenantId"`,
};

/**
 * A pending reservation becomes active, and its instance runs on the node from then on.
 *
 * @returns 'already' when it was: a word that is repeated changes nothing
 * @throws CONFLICT (reservation-changed) when it is not what was judged any more
 */
export function activateReservation(
  db: Database,
  { reservationId, allocationId, nodeId, evidence }: Activation,
  now: number,
): Promise<Exclude<BindingVerdict['kind'], 'refused'>> {
  const { body = null, signature = null, certIssuer = null, certSerial = null } = evidence ?? {};
  return db.transaction(async (tx) => {
    const values = [reservationId, allocationId, nodeId, instant(now), body, signature, certIssuer, certSerial];
    const [row] = await tx.query<{ tenantId: string }>(activate, values);
    if (row === undefined) return assertAlready(await findReservation(tx, reservationId), { reservationId, allocationId, nodeId });
    const { tenantId } = row;
    await placeInstance(tx, { instanceId: allocationId, tenantId, nodeId }, now);
    const details = { node: nodeId, allocation: allocationId, certificate: certSerial };
    const event = { key: `reservation/${reservationId}/active`, action: 'reservation.activate', subject: reservationId, details };
    await appendAudit(tx, { ...event, actor: `node/${nodeId}`, tenant: tenantId }, now);
    return 'bound';
  });
}

function assertAlready(
  found: ReservationView | undefined,
  { reservationId, allocationId, nodeId }: Omit<Activation, 'evidence'>,
): 'already' {
  if (found?.state === 'active' && found.allocationId === allocationId && found.nodeId === nodeId) return 'already';
  throw new ControlError('CONFLICT', `reservation ${reservationId} cannot become active: it, its node or the certificate changed`, {
    details: { reason: 'reservation-changed', state: found?.state ?? null },
  });
}

const end = {
  name: 'reservation-end',
  text: `update reservations set state = 'ended', ended_at = $2 where id = $1 and state <> 'ended'
         returning tenant_id as "tenantId", node_id as "nodeId", allocation_id as "allocationId"`,
};

/** Its instance gets no token any more. @returns false when it had ended before. @throws NOT_FOUND */
export function endReservation(
  db: Database,
  { id, actor }: { readonly id: string; readonly actor: string },
  now: number,
): Promise<boolean> {
  return db.transaction(async (tx) => {
    const [row] = await tx.query<{ tenantId: string; nodeId: string; allocationId: string }>(end, [id, instant(now)]);
    if (row === undefined) {
      if ((await findReservation(tx, id)) !== undefined) return false;
      throw new ControlError('NOT_FOUND', `there is no reservation ${id}`, { details: { reason: 'unknown-reservation' } });
    }
    await endInstance(tx, { instanceId: row.allocationId, nodeId: row.nodeId }, now);
    const details = { node: row.nodeId, allocation: row.allocationId };
    await appendAudit(
      tx,
      { key: `reservation/${id}/ended`, actor, action: 'reservation.end', subject: id, details, tenant: row.tenantId },
      now,
    );
    return true;
  });
}
