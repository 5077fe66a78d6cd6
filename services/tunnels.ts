/**
 * `tunnels.open` (EXEC-005, TUN-012): whether a caller may have a tunnel, and the exec ticket that opens it.
 *
 * The order is the rule: what is asked for is found, the caller is asked about at its tenant, the node is asked for by what it last said of
 * itself, and only then a ticket is made. Allowed or not, the trail says so, and what is allowed stands in it before the ticket leaves.
 * A later ticket for a tunnel that is open is asked for in the same way: who may no longer have it gets none, and the machine ends it.
 */
import { ControlError } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { encodeTunnelDestination, findTunnelOperation, type TunnelOperationName } from '../domain/tunnels/operations.ts';
import type { Database, Executor } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { type ExecTicketIssuer, maxTicketSeconds } from '../pki/exec/index.ts';
import { recordAudit } from './audit.ts';
import { assertAllowed, type Caller } from './callers.ts';
import { findInstance, type PlacedInstance } from './workload-instances.ts';

export interface TunnelRequest {
  readonly operation: TunnelOperationName;
  /** For operations that lead to the machine. */
  readonly nodeId?: string | undefined;
  /** For operations that lead to an instance. */
  readonly instanceId?: string | undefined;
  /** For operations that leave the port open. */
  readonly port?: number | undefined;
}

export interface OpenTunnelOptions {
  readonly db: Database;
  readonly issuer: ExecTicketIssuer;
  readonly caller: Caller;
  readonly request: TunnelRequest;
}

export interface GrantedTunnel {
  readonly ticket: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
  readonly nodeId: string;
}

interface Place {
  readonly nodeId: string;
  readonly tenantId: string;
  /** As a ticket says it; null for the machine itself. */
  readonly destination: string | null;
  /** What stands in the trail as subject. */
  readonly subject: string;
}

/**
 * @throws INVALID_INPUT for a request that does not fit its operation; NOT_FOUND; PERMISSION_DENIED; INVALID_STATE (not-connected,
 *   session-over); UNSUPPORTED (no-capability) when the node does not take such tunnels
 */
export async function openTunnel(options: OpenTunnelOptions): Promise<GrantedTunnel> {
  const { db, caller, request } = options;
  const place = await findPlace(db, request); //                       1. what is asked for
  const { tenantId, subject, nodeId } = place;
  const asked = { operation: request.operation, nodeId };
  await assertAllowed(db, { caller, tenantId, subject, action: 'tunnels.denied', details: asked }); // 2. the caller may have it
  await assertTaken(db, nodeId, request.operation); //           3. the node takes such tunnels
  const issued = await issue(options, place); //                       4. a ticket
  const { jti, ticket, expiresAt } = issued;
  const details = { ...asked, destination: place.destination ?? '', session: caller.session.id, jti };
  const event = { key: `tunnel/${jti}`, actor: caller.actor, action: 'tunnels.open', subject, tenant: tenantId, details };
  await recordAudit(db, event, await databaseNow(db)); //              5. that stands in the trail
  return { ticket, expiresAt, nodeId };
}

async function issue({ db, issuer, caller, request }: OpenTunnelOptions, { nodeId, destination }: Place) {
  const { id: sessionId, endsAt } = caller.session;
  const left = endsAt === null ? maxTicketSeconds : Math.floor((endsAt - (await databaseNow(db))) / second);
  if (left < 1)
    throw new ControlError('INVALID_STATE', 'the session of the caller is over: it gets no ticket', {
      details: { reason: 'session-over' },
    });
  return issuer.issue({
    nodeId,
    sessionId,
    operation: request.operation,
    actor: caller.name,
    lifetimeSeconds: Math.min(maxTicketSeconds, left),
    ...(destination === null ? {} : { destination }),
  });
}

const invalid = (message: string, hint: string): ControlError =>
  new ControlError('INVALID_INPUT', message, { details: { reason: 'tunnel-request', hint } });

const findPlace = (db: Executor, request: TunnelRequest): Promise<Place> =>
  findTunnelOperation(request.operation)?.leadsTo === 'machine' ? findMachine(db, request) : findInstancePlace(db, request);

async function findMachine(db: Executor, { operation, nodeId, instanceId, port }: TunnelRequest): Promise<Place> {
  if (nodeId === undefined || instanceId !== undefined || port !== undefined)
    throw invalid(`${operation} leads to a machine, and to one port of it`, 'name the node, and nothing else');
  return { nodeId, tenantId: await tenantOf(db, nodeId), destination: null, subject: nodeId };
}

async function findInstancePlace(db: Executor, { operation, nodeId, instanceId, port }: TunnelRequest): Promise<Place> {
  if (instanceId === undefined || nodeId !== undefined)
    throw invalid(`${operation} leads to an instance, wherever it runs`, 'name the instance, and no node');
  const fixed = findTunnelOperation(operation)?.port ?? null;
  if (fixed !== null && port !== undefined) throw invalid(`${operation} leads to port ${fixed}`, 'instance.tcp leads to others');
  const wanted = fixed ?? port;
  if (wanted === undefined) throw invalid(`${operation} needs a port`, 'name it');
  const instance = await getInstance(db, instanceId);
  const destination = encodeTunnelDestination({ instanceId, address: addressOf(instance), port: wanted });
  return { nodeId: instance.nodeId, tenantId: instance.tenantId, destination, subject: instanceId };
}

const nodeTenant = { name: 'tunnel-node', text: `select tenant_id as "tenantId" from nodes where id = $1 and state = 'active'` };

async function tenantOf(db: Executor, nodeId: string): Promise<string> {
  const [row] = await db.query<{ tenantId: string }>(nodeTenant, [nodeId]);
  if (row !== undefined) return row.tenantId;
  throw new ControlError('NOT_FOUND', `no active node is called ${nodeId}`, {
    details: { reason: 'unknown-node', nodeId, hint: 'better-compute nodes list' },
  });
}

/** @throws NOT_FOUND for one that runs nowhere */
export async function getInstance(db: Executor, instanceId: string): Promise<PlacedInstance> {
  const instance = await findInstance(db, instanceId);
  if (instance !== undefined) return instance;
  throw new ControlError('NOT_FOUND', `no instance ${instanceId} runs anywhere`, { details: { reason: 'unknown-instance', instanceId } });
}

function addressOf({ id, address }: PlacedInstance): string {
  if (address !== null) return address;
  throw new ControlError('INVALID_STATE', `nobody said where in the network instance ${id} is`, {
    details: { reason: 'no-address', hint: 'whoever places instances gives their address' },
  });
}

const openSession = {
  name: 'tunnel-session',
  text: 'select capabilities from node_sessions where node_id = $1 and ended_at is null order by epoch desc limit 1',
};

/** TUN-012: by what the node said in the Hello of its session. */
async function assertTaken(db: Executor, nodeId: string, operation: TunnelOperationName): Promise<void> {
  const [session] = await db.query<{ capabilities: string[] }>(openSession, [nodeId]);
  if (session === undefined)
    throw new ControlError('INVALID_STATE', `node ${nodeId} is not connected`, { details: { reason: 'not-connected', nodeId } });
  const capability = findTunnelOperation(operation)?.capability ?? '';
  if (session.capabilities.includes(capability)) return;
  throw new ControlError('UNSUPPORTED', `node ${nodeId} takes no tunnels for ${operation}: it does not advertise ${capability}`, {
    details: {
      reason: 'no-capability',
      nodeId,
      capability,
      hint: 'the owner of a machine names them in config.json of bcd: tunnels.operations',
    },
  });
}
