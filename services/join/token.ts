/**
 * Joining with a token, for an operator's machine (join-token) and for the system that a run of the control plane installed
 * (provisioned). A token is used by one conditional UPDATE, so of any number of parallel joins one wins (C25). The answer may get lost on
 * the way: the same token with the same CSR is the same machine asking again, and gets the same node and the same certificate.
 *
 * The two differ in what they may do to a node that is known: an operator's token gives a node of the same site, role and tenant its next
 * identity; a provisioned one turns the ramdisk of the machine that it names into that machine's node.
 */
import { randomBytes } from 'node:crypto';
import type { NodeRole } from '../../domain/commands/kinds.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { lockNode, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import { type JoinTokenClaims, openJoinToken } from '../../pki/enroll/index.ts';
import type { CertificateRequest } from '../../pki/x509/index.ts';
import { secretSha256, type TokenRole } from '../tokens.ts';
import { admitNode } from './admit.ts';
import { csrSha256, denied } from './identity.ts';
import type { Asked, Attestor, Claim, JoinServiceOptions } from './types.ts';

type TokenAttestor = 'join-token' | 'provisioned';

interface Rules {
  readonly name: TokenAttestor;
  /** The node's role before this join, when it is known already. */
  readonly mayReplace: (before: NodeRole, role: NodeRole) => boolean;
  /** Under the node's lock, which whatever ends a run takes first. @throws PERMISSION_DENIED */
  readonly assertWanted?: (tx: Executor, join: { readonly nodeId: string; readonly tokenId: string }) => Promise<void>;
}

const attestorOf = (roles: readonly TokenRole[], rules: Rules): Attestor => ({
  roles,
  judge(asked, options) {
    const claims = openToken(asked, options);
    const { tokenId, nodeId = null, siteId } = claims;
    return {
      facts: { nodeId, siteId },
      claim: (tx) => claimToken(tx, { ...asked, claims, rules }, options),
      lock: async (tx) => void (await tx.query(lockToken, [tokenId])),
    };
  },
});

export const joinToken = attestorOf(['node', 'site'], { name: 'join-token', mayReplace: (before, role) => before === role });

/** The machine stands in its ramdisk, or was provisioned before and answers for its old system still. */
export const provisioned = attestorOf(['node'], {
  name: 'provisioned',
  mayReplace: (before) => before === 'ramdisk' || before === 'node',
  assertWanted: assertRunOpen,
});

const tokensRun = {
  name: 'join-token-run',
  text: 'select r.id, r.state from join_tokens t join metal_runs r on r.id = t.run_id where t.id = $1',
};

/** The string lies on the machine's disk: behind the end of its run it brings back nobody. */
async function assertRunOpen(tx: Executor, { nodeId, tokenId }: { readonly nodeId: string; readonly tokenId: string }): Promise<void> {
  await lockNode(tx, nodeId);
  const [run] = await tx.query<{ id: string; state: string }>(tokensRun, [tokenId]);
  if (run?.state !== 'open') throw denied('run-ended', `the join token was made by run ${run?.id ?? 'that is gone'}, which has ended`);
}

function openToken({ request: { evidence, role, nodeId } }: Asked, { joinEncryption, trustDomain }: JoinServiceOptions): JoinTokenClaims {
  const claims = openJoinToken(joinEncryption.privateKey, Buffer.from(evidence).toString('utf8'), { trustDomain });
  if (claims.role !== role) throw denied('wrong-role', `the join token is for role ${claims.role}, the request for ${role}`);
  assertTakenFor(nodeId, claims);
  return claims;
}

/** JOIN-016: a machine that takes itself for another one is told so before its token is used up. */
function assertTakenFor(nodeId: string, claims: JoinTokenClaims): void {
  if (nodeId === '' || nodeId === claims.nodeId) return;
  const named = claims.nodeId === undefined ? 'names no node' : `is for node ${claims.nodeId}`;
  throw denied('other-node', `the machine takes itself for node ${JSON.stringify(nodeId.slice(0, 128))}, and the join token ${named}`);
}

interface TokenAsked extends Asked {
  readonly claims: JoinTokenClaims;
  readonly rules: Rules;
}

interface TokenState {
  readonly nodeId: string | null;
  readonly siteId: string;
  readonly role: TokenRole;
  readonly attestor: TokenAttestor;
  readonly createdBy: string;
  readonly expiresAt: number;
  readonly usedByNode: string | null;
  readonly usedCsr: Uint8Array | null;
  readonly tenantId: string;
}

const tokenColumns = `node_id as "nodeId", site_id as "siteId", role, attestor, tenant_id as "tenantId", created_by as "createdBy",
  expires_at as "expiresAt", used_by_node as "usedByNode", used_csr_sha256 as "usedCsr"`;
const use = {
  name: 'join-token-use',
  text: `update join_tokens set used_at = $3, used_by_node = coalesce(node_id, $4), used_csr_sha256 = $5
         where id = $1 and secret_sha256 = $2 and attestor = $6 and used_at is null and expires_at > $3 returning ${tokenColumns}`,
};
const look = { name: 'join-token-look', text: `select ${tokenColumns} from join_tokens where id = $1 and secret_sha256 = $2` };
const lockToken = { name: 'join-token-lock', text: 'select id from join_tokens where id = $1 for update' };

async function claimToken(tx: Executor, asked: TokenAsked, options: JoinServiceOptions): Promise<Claim> {
  const { request, csr, claims, rules } = asked;
  const { now, random = randomBytes } = options;
  const newId = `${request.role}-${Buffer.from(random(6)).toString('hex')}`;
  const key = [claims.tokenId, secretSha256(claims.secret)];
  const [used] = await tx.query<TokenState>(use, [...key, instant(now), newId, csrSha256(csr), rules.name]);
  const stillOpen = async (): Promise<TokenState> => assertRepeated((await tx.query<TokenState>(look, key))[0], { csr, now, rules });
  const token = used ?? (await stillOpen());
  const nodeId = token.usedByNode ?? newId;
  const node = used === undefined ? await repeatedNode(tx, nodeId, stillOpen) : await admit(tx, { nodeId, token, asked }, options);
  const { siteId, role, identityGeneration: generation } = node;
  return { node: { id: nodeId, siteId, role, generation }, repeated: used === undefined, statements: [] };
}

interface Repeating {
  readonly csr: CertificateRequest;
  readonly now: number;
  readonly rules: Rules;
}

function assertRepeated(token: TokenState | undefined, { csr, now, rules }: Repeating): TokenState {
  if (token === undefined) throw denied('token-unknown', 'the join token is not known here');
  if (token.attestor !== rules.name)
    throw denied('wrong-attestor', `the join token is for attestor ${token.attestor}, the request names ${rules.name}`);
  if (token.usedByNode === null) {
    throw denied(token.expiresAt <= now ? 'token-expired' : 'token-unknown', 'the join token has expired');
  }
  if (token.usedCsr !== null && csrSha256(csr).equals(token.usedCsr)) return token;
  throw denied('token-used', `the join token was used by node ${token.usedByNode}`);
}

/** Asked once more under the node's lock: it may have joined again while this waited for it. */
async function repeatedNode(tx: Executor, nodeId: string, stillOpen: () => Promise<TokenState>): Promise<NodeFacts> {
  const node = await lockNode(tx, nodeId);
  await stillOpen();
  if (node?.state === 'active') return node;
  throw denied('token-used', `the join token was used by node ${nodeId}, which is ${node?.state ?? 'gone'}`);
}

interface Admission {
  readonly nodeId: string;
  readonly token: TokenState;
  readonly asked: TokenAsked;
}

/** A new node; or one that is known and gets a new identity, because somebody made a token for it by name. */
async function admit(tx: Executor, { nodeId, token, asked }: Admission, { now }: JoinServiceOptions): Promise<NodeFacts> {
  const { siteId, role, tenantId, createdBy: actor } = token;
  await asked.rules.assertWanted?.(tx, { nodeId, tokenId: asked.claims.tokenId });
  const { tokenId } = asked.claims;
  return admitNode(tx, {
    nodeId,
    siteId,
    role,
    tenantId,
    actor,
    now,
    word: 'the join token',
    evidenceId: tokenId,
    mayReplace: (before) => asked.rules.mayReplace(before.role, role),
    hardware: asked.request.hardware,
    details: { token: tokenId, attestor: asked.rules.name },
  });
}
