/**
 * An operator's order to enrol a machine over SSH (XC-033, XC-034). All that decides where a credential is sent stands in its row, written here and
 * never changed: workflows and workers name the row by its id. Nothing is dialled before the host key is known.
 */
import { randomBytes } from 'node:crypto';
import { isNodeId } from '../../domain/commands/ids.ts';
import { readHostKeyText } from '../../domain/enrolment/host-key.ts';
import { accessProblems, credentialProblem, type EnrolmentKind, type HostAccess, sshPort } from '../../domain/enrolment/order.ts';
import { ControlError } from '../../domain/errors.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { lockNode, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import { sshFingerprint } from '../../pki/ssh/index.ts';
import { formatSpiffeId } from '../../pki/x509/index.ts';
import { appendAudit } from '../audit.ts';
import { assertTenant, defaultTenant } from '../tenants.ts';
import { getEnrolment, lastCompletedEnrolment } from './rows.ts';
import type { Enrolment } from './types.ts';

/** What may be left out is taken from the node and from the last enrolment that completed. */
export interface EnrolmentOrder extends Partial<HostAccess> {
  readonly kind: EnrolmentKind;
  readonly nodeId: string;
  readonly siteId?: string;
  readonly role?: 'node' | 'site';
  readonly tenantId?: string;
  /** A fingerprint, or the line of a public key. */
  readonly hostKey?: string;
  readonly credential?: string;
}

export interface OrderOptions {
  readonly trustDomain: string;
  readonly actor: string;
  readonly reason: string;
  readonly now: number;
  readonly random?: (bytes: number) => Uint8Array;
}

type Draft = Omit<Enrolment, 'id' | 'state' | 'deadline' | 'createdBy' | 'reason' | 'createdAt' | 'endedAt' | 'endReason'>;

/**
 * What would be ordered; nothing is written.
 *
 * @throws INVALID_INPUT with every problem; NOT_FOUND; INVALID_STATE; CONFLICT (enrol-in-progress)
 */
export const draftEnrolment = (db: Database, order: EnrolmentOrder, options: Pick<OrderOptions, 'trustDomain'>): Promise<Draft> =>
  db.transaction((tx) => draft(tx, order, options));

/** @throws as draftEnrolment */
export async function orderEnrolment(db: Database, order: EnrolmentOrder, options: OrderOptions): Promise<Enrolment> {
  const { actor, reason, now, random = randomBytes } = options;
  const id = `enr-${Buffer.from(random(12)).toString('hex')}`;
  return db.transaction(async (tx) => {
    const drafted = await draft(tx, order, options);
    await insertRow(tx, { ...drafted, id, createdBy: actor, reason, createdAt: now });
    const { nodeId, kind, address, port, login, hostKey, credential, baseGeneration } = drafted;
    // A machine that was installed anew is trusted again by an operator who says its key: the trail has the one before beside it.
    const former = (await lastCompletedEnrolment(tx, nodeId))?.hostKey;
    const instead = former === undefined || former === hostKey ? {} : { hostKeyBefore: former };
    const details = { enrolment: id, kind, address, port, login, hostKey, ...instead, credential, baseGeneration, reason };
    await appendAudit(tx, { key: `enrolment/${id}/order`, actor, action: 'node.enrolment-ordered', subject: nodeId, details }, now);
    return getEnrolment(tx, id);
  });
}

const insert = {
  name: 'enrolments-insert',
  text: `insert into enrolments (id, node_id, site_id, role, tenant_id, kind, base_generation, address, port, login, become_root, host_key, credential,
           created_by, reason, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
         on conflict (node_id) where state in ('open', 'minted') do nothing returning id`,
};

async function insertRow(tx: Executor, row: Draft & Pick<Enrolment, 'id' | 'createdBy' | 'reason' | 'createdAt'>): Promise<void> {
  const { id, nodeId, siteId, role, tenantId, kind, baseGeneration, createdBy, reason } = row;
  const { address, port, login, becomeRoot, hostKey, credential } = row;
  const whose: unknown[] = [id, nodeId, siteId, role, tenantId, kind, baseGeneration];
  const how = [address, port, login, becomeRoot, hostKey, credential];
  const written = await tx.query(insert, whose.concat(how, createdBy, reason, instant(row.createdAt)));
  if (written.length === 0) throw inProgress(nodeId);
}

const openOne = { name: 'enrolments-open', text: "select id from enrolments where node_id = $1 and state in ('open', 'minted')" };

const inProgress = (nodeId: string): ControlError =>
  new ControlError('CONFLICT', `node ${nodeId} is being enrolled already`, {
    details: {
      reason: 'enrol-in-progress',
      hint: `better-compute enrolments list --node ${nodeId} shows it; enrolments cancel ends it`,
    },
  });

async function draft(tx: Executor, order: EnrolmentOrder, { trustDomain }: Pick<OrderOptions, 'trustDomain'>): Promise<Draft> {
  const { kind, nodeId } = order;
  if (!isNodeId(nodeId)) throw refused([`node id ${JSON.stringify(nodeId.slice(0, 80))} has not 1 to 63 letters, digits, dots, dashes`]);
  if ((await tx.query(openOne, [nodeId])).length > 0) throw inProgress(nodeId);
  const node = await lockNode(tx, nodeId);
  const whose = kind === 'enrol' ? newNode(order, node) : await knownNode(tx, order, node);
  await assertTenant(tx, whose.tenantId);
  const access = accessOf(order, kind === 'enrol' ? undefined : await lastCompletedEnrolment(tx, nodeId));
  formatSpiffeId({ trustDomain, siteId: whose.siteId, nodeId });
  return { kind, nodeId, ...whose, ...access };
}

type Whose = Pick<Draft, 'siteId' | 'role' | 'tenantId' | 'baseGeneration'>;

function newNode({ nodeId, siteId, role = 'node', tenantId = defaultTenant }: EnrolmentOrder, node: NodeFacts | undefined): Whose {
  if (node !== undefined)
    throw new ControlError('INVALID_STATE', `node ${nodeId} is known already: it is ${node.state}, of site ${node.siteId}`, {
      details: { reason: 'node-known', hint: `to give it its next identity: better-compute nodes reenrol ${nodeId}` },
    });
  if (siteId === undefined) throw refused(['a new node needs its site']);
  return { siteId, role, tenantId, baseGeneration: null };
}

const tenantOf = { name: 'enrolments-tenant', text: 'select tenant_id as "tenantId" from nodes where id = $1' };

async function knownNode(tx: Executor, order: EnrolmentOrder, node: NodeFacts | undefined): Promise<Whose> {
  const { nodeId } = order;
  if (node === undefined)
    throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, {
      details: { reason: 'unknown-node', nodeId, hint: `for a machine that is new: better-compute nodes enrol ${nodeId}` },
    });
  const { role, state, siteId, identityGeneration } = node;
  if (state !== 'active' && state !== 'revoked') throw notNow(`node ${nodeId} is ${state}: no enrolment brings it back`, 'node-not-active');
  if (role !== 'node' && role !== 'site')
    throw notNow(`node ${nodeId} is a ${role}: a run on its machine gives it its identity`, 'wrong-role');
  const [{ tenantId } = { tenantId: defaultTenant }] = await tx.query<{ tenantId: string }>(tenantOf, [nodeId]);
  const other = (['siteId', 'role', 'tenantId'] as const).filter(
    (field) => order[field] !== undefined && order[field] !== { siteId, role, tenantId }[field],
  );
  if (other.length > 0)
    throw refused(other.map((field) => `${field} of a known node stays what it is: ${{ siteId, role, tenantId }[field]}`));
  return { siteId, role, tenantId, baseGeneration: identityGeneration };
}

type Access = Pick<Draft, 'address' | 'port' | 'login' | 'becomeRoot' | 'hostKey' | 'credential'>;

/** What is not said now is as it was the last time that it worked. */
const usual = Object.freeze({ login: 'root', port: sshPort, becomeRoot: false });

function accessOf(order: EnrolmentOrder, before: Enrolment | undefined): Access {
  const { address, port, login, becomeRoot, credential, hostKey } = { ...usual, ...accessPart(before), ...accessPart(order) };
  if (address === undefined) throw refused(['address: where is the machine? It was not enrolled over SSH before']);
  if (credential === undefined) throw refused(['credential: which one opens the machine? It was not enrolled over SSH before']);
  const access = { address, port, login, becomeRoot };
  const problem = credentialProblem(credential);
  const problems = [...accessProblems(access), ...(problem === undefined ? [] : [problem])];
  if (problems.length > 0) throw refused(problems);
  return { ...access, credential, hostKey: hostKeyOf(hostKey) };
}

const accessFields = ['address', 'port', 'login', 'becomeRoot', 'credential', 'hostKey'] as const;

const accessPart = (said: Partial<Access> | undefined): Partial<Access> =>
  Object.fromEntries(accessFields.flatMap((field) => (said?.[field] === undefined ? [] : [[field, said[field]]])));

/** XC-034: never on first use. */
function hostKeyOf(text: string | undefined): string {
  if (text === undefined)
    throw new ControlError('INVALID_INPUT', 'the host key is not known, and none is trusted on first use', {
      details: {
        reason: 'ssh-hostkey-required',
        hint: 'on the machine: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub; give what it prints as --expect-hostkey SHA256:…',
      },
    });
  const key = readHostKeyText(text.trim());
  if (key.kind === 'refused') throw refused([`host key ${JSON.stringify(text.slice(0, 80))}: ${key.why}`]);
  return key.kind === 'fingerprint' ? key.fingerprint : sshFingerprint(key.blob);
}

const refused = (problems: readonly string[]): ControlError =>
  new ControlError('INVALID_INPUT', problems.join('; '), { details: { reason: 'enrolment-order', problems } });

const notNow = (message: string, reason: string): ControlError => new ControlError('INVALID_STATE', message, { details: { reason } });
