/**
 * Joining by an enrolment over SSH (XC-033 to XC-044): an operator named the machine, and the control plane read over SSH, from the machine whose host
 * key was known, the request of a key that was made there. The machine that comes with that request gets the next identity, in this very
 * transaction: before it there is no certificate to steal and nothing to take back, after it the identity before is over.
 *
 * It may ask first whether this is its control plane: the answer, signed like every other, repeats the enrolment's id. Nothing is written for it.
 *
 * Threat model: an enrolment's id is no secret, and a gateway sees the request. Whoever has both gets a certificate for a key that he does not have; and
 * whoever takes the machine's key file gets what the machine had. The row counts once, until its deadline, on top of the one generation that it
 * was made for: a node that joined, was revoked or was taken by another run meanwhile is left as it is.
 */
import { type EnrolmentEvidence, readEnrolmentEvidence } from '../../domain/enrolment/evidence.ts';
import { type EnrolmentState, enrolmentMoves, isOver } from '../../domain/enrolment/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { lockNode, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import type { TokenRole } from '../tokens.ts';
import { admitNode } from './admit.ts';
import { csrSha256, denied } from './identity.ts';
import type { Asked, Attestor, Claim, JoinServiceOptions } from './types.ts';

export const enrolment: Attestor = {
  roles: ['node', 'site'],
  async judge(asked, options) {
    const { asks, id } = readEvidence(asked); //                     1. names an enrolment
    const row = getRow(await options.db.query<Row>(look, [id]), id); // 2. that an operator made
    assertAskedFor(row, asked); //                                   3. of this role, and this node
    if (asks === 'health') return answerHealth(row, options);
    assertItsKey(row, { ...asked, now: options.now }); //            4. with the request that was read on the machine
    return {
      facts: { nodeId: row.nodeId, siteId: row.siteId },
      claim: (tx) => claimNext(tx, { row, asked }, options),
      lock: async (tx) => void (await lockNode(tx, row.nodeId)),
    };
  },
};

function readEvidence({ request: { evidence } }: Asked): EnrolmentEvidence {
  const read = readEnrolmentEvidence(evidence);
  if (read !== null) return read;
  throw new ControlError('MALFORMED', 'the evidence names no enrolment', { details: { reason: 'evidence' } });
}

interface Row {
  readonly id: string;
  readonly nodeId: string;
  readonly siteId: string;
  readonly role: TokenRole;
  readonly tenantId: string;
  /** null: the node is not known before. */
  readonly baseGeneration: number | null;
  readonly state: EnrolmentState;
  readonly csrSha256: Buffer | null;
  readonly deadline: number | null;
  readonly createdBy: string;
}

const look = {
  name: 'enrolment-look',
  text: `select id, node_id as "nodeId", site_id as "siteId", role, tenant_id as "tenantId", base_generation as "baseGeneration", state,
           csr_sha256 as "csrSha256", deadline, created_by as "createdBy" from enrolments where id = $1`,
};

function getRow([row]: readonly Row[], id: string): Row {
  if (row !== undefined) return row;
  throw denied('enrolment-unknown', `no enrolment ${id} is known here`);
}

function assertAskedFor({ id, role, nodeId }: Row, { request }: Asked): void {
  if (request.role !== role) throw denied('wrong-role', `enrolment ${id} is for role ${role}, the request for ${request.role}`);
  if (request.nodeId === '' || request.nodeId === nodeId) return;
  const taken = JSON.stringify(request.nodeId.slice(0, 128));
  // The id is no secret, so it names nobody.
  throw denied('other-node', `the machine takes itself for node ${taken}, and enrolment ${id} is for another`);
}

const over = ({ id, state }: Row): ControlError => denied('enrolment-over', `enrolment ${id} is ${state}: it is over`);

const endedAt = ({ deadline }: Row, now: number): number | null => (deadline !== null && deadline <= now ? deadline : null);

const tooLate = ({ id }: Row, deadline: number): ControlError =>
  denied('enrolment-over', `enrolment ${id} had to complete by ${showInstant(deadline)}`);

/** XC-041: for whichever key asks; no word about a node leaves with it. */
function answerHealth(row: Row, { now }: JoinServiceOptions): { readonly challenge: Uint8Array } {
  if (isOver(row.state)) throw over(row);
  const late = endedAt(row, now);
  if (late !== null) throw tooLate(row, late);
  return { challenge: Buffer.from(row.id, 'utf8') };
}

function assertItsKey(row: Row, { csr, now }: Asked & { readonly now: number }): void {
  if (row.state === 'failed' || row.state === 'cancelled') throw over(row);
  if (row.csrSha256 === null) throw denied('enrolment-open', `enrolment ${row.id} does not know the machine's key yet`);
  if (!csrSha256(csr).equals(row.csrSha256)) throw denied('other-key', `enrolment ${row.id} is for another key than that of the request`);
  const late = row.state === 'completed' ? null : endedAt(row, now);
  if (late !== null) throw tooLate(row, late);
}

interface Claiming {
  readonly row: Row;
  readonly asked: Asked;
}

const complete = {
  name: 'enrolment-complete',
  text: `update enrolments set state = $5, ended_at = $3
         where id = $1 and state = any($4) and csr_sha256 = $2 and deadline > $3 returning id`,
};

/** Under the node's lock, where every end of an identity meets; then the row: of any number of joins one completes it. */
async function claimNext(tx: Executor, { row, asked }: Claiming, options: JoinServiceOptions): Promise<Claim> {
  const { id, nodeId, siteId, role } = row;
  const { from, to } = enrolmentMoves.complete;
  await lockNode(tx, nodeId);
  const used = await tx.query(complete, [id, csrSha256(asked.csr), instant(options.now), from, to]);
  const repeated = used.length === 0;
  const node = repeated ? await nodeCompleted(tx, { row, asked }, options.now) : await admit(tx, { row, asked }, options.now);
  return { node: { id: nodeId, siteId, role, generation: node.identityGeneration }, repeated, statements: [] };
}

const nextGeneration = ({ baseGeneration }: Row): number => (baseGeneration ?? 0) + 1;

/** The same request came before. @throws PERMISSION_DENIED when it did not, or when the identity that it was given is over */
async function nodeCompleted(tx: Executor, { row: { id }, asked }: Claiming, now: number): Promise<NodeFacts> {
  const row = getRow(await tx.query<Row>(look, [id]), id);
  assertItsKey(row, { ...asked, now });
  const node = await lockNode(tx, row.nodeId);
  if (node?.state === 'active' && node.role === row.role && node.identityGeneration === nextGeneration(row)) return node;
  const standing = node === undefined ? 'gone' : `${node.state} in generation ${node.identityGeneration}`;
  throw denied('enrolment-over', `enrolment ${id} gave generation ${nextGeneration(row)} of node ${row.nodeId}, which is ${standing}`);
}

/** XC-038. @throws PERMISSION_DENIED when the node is not what it was when the enrolment was made */
async function admit(tx: Executor, { row, asked }: Claiming, now: number): Promise<NodeFacts> {
  const { id, nodeId, siteId, role, tenantId, createdBy: actor } = row;
  const admitted = await admitNode(tx, {
    nodeId,
    siteId,
    role,
    tenantId,
    actor,
    now,
    word: `enrolment ${id}`,
    evidenceId: id,
    mayReplace: (before) => {
      if (before.identityGeneration !== row.baseGeneration) throw changed(row, `is in generation ${before.identityGeneration}`);
      return before.role === role;
    },
    hardware: asked.request.hardware,
    details: { enrolment: id, attestor: 'enrolment' },
  });
  if (admitted.identityGeneration !== nextGeneration(row)) throw changed(row, 'is gone');
  return admitted;
}

function changed({ id, nodeId, baseGeneration }: Row, now: string): ControlError {
  const then = baseGeneration === null ? 'a node that is not known yet' : `generation ${baseGeneration}`;
  return denied('generation-superseded', `enrolment ${id} was made for ${then}, and node ${nodeId} ${now}`);
}
