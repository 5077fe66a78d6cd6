/**
 * Joining from the ramdisk (JOIN-018, M68): a site agent says that the machine of one boot entry booted at its boot server, showed the
 * entry's token and will use this key. The entry is used by one conditional UPDATE; the machine becomes a ramdisk, its next identity.
 *
 * Threat model: whoever reads a machine's boot traffic has its token, and may be the first to use it. Then two machines hold one token, and
 * the second to come says so: its join is refused, the machine is quarantined, whatever the first was given is revoked, and the trail
 * names both keys. A site agent can lie about the machines of its own site alone, and only for an entry that a run has open: it cannot
 * make one, move one to another machine, or use one twice.
 */
import { ControlError, isControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { type Executor, instant } from '../../drizzle/client.ts';
import { lockNode, type NodeFacts, readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { verifyEnvelope } from '../../pki/envelope/index.ts';
import { type Certificate, nodeIdentityOf, verifyChain } from '../../pki/x509/index.ts';
import { bounds, decodeMessage, type Signature, site } from '../../proto/index.ts';
import { appendAudit } from '../audit.ts';
import { findCertificateRow, issuerOf } from '../node-certs.ts';
import { beginIdentity, csrSha256, denied } from './identity.ts';
import type { Asked, Attestor, Claim, JoinServiceOptions } from './types.ts';

/** An assertion is made when the machine asks; one that says it lives longer is none. */
const longestAssertionMs = 10 * minute;
/** Clocks of site agents follow the server's, not exactly. */
const skewMs = minute;

export const discovery: Attestor = {
  roles: ['ramdisk'],
  async judge(asked, options) {
    const { body, signature } = readDiscoveryEvidence(asked.request.evidence); // 1. an assertion and its signature
    const agent = await assertSiteAgent(signature, options); //           2. by a site agent of this deployment, now
    verifyEnvelope({ signature, purpose: 'discovery', parts: [body], key: agent.leaf.spki }); // 3. which signed exactly this
    const said = readAssertion(body);
    assertSaid(said, { asked, agent, options }); //                       4. here, now, for this key
    await assertOfItsSite(said, agent, options); //                       5. of a machine of its own site
    return {
      facts: { nodeId: said.nodeId, siteId: said.siteId },
      claim: (tx) => claimEntry(tx, { asked, said }, options),
      lock: async (tx) => void (await lockNode(tx, said.nodeId)),
      onRefused: (tx, error) => alarm(tx, { asked, said, error }, options),
    };
  },
};

const badEvidence = (message: string, cause?: unknown): ControlError =>
  new ControlError('MALFORMED', message, { details: { reason: 'evidence' }, ...(cause === undefined ? {} : { cause }) });

/** @throws MALFORMED for bytes that are none, or are not signed */
export function readDiscoveryEvidence(evidence: Uint8Array): { readonly body: Uint8Array; readonly signature: Signature } {
  try {
    const { body, signature } = decodeMessage(site.SignedDiscoveryAssertionSchema, evidence, 'renewRequest');
    if (signature !== undefined) return { body, signature };
  } catch (cause) {
    throw badEvidence('the evidence is not a SignedDiscoveryAssertion', cause);
  }
  throw badEvidence('the assertion is not signed');
}

/** @throws MALFORMED */
export function readAssertion(body: Uint8Array): site.DiscoveryAssertion {
  try {
    return decodeMessage(site.DiscoveryAssertionSchema, body, 'renewRequest');
  } catch (cause) {
    throw badEvidence('the body is not a DiscoveryAssertion', cause);
  }
}

interface SiteAgent {
  readonly leaf: Certificate;
  readonly nodeId: string;
  readonly siteId: string;
}

/** The rows decide, as everywhere: a certificate that chains and was not issued here, or was revoked, says nothing. */
async function assertSiteAgent({ chain }: Signature, { db, anchors, trustDomain, nodeCa, now }: JoinServiceOptions): Promise<SiteAgent> {
  if (chain.length === 0 || chain.length > bounds.certificateChainLength)
    throw badEvidence(`the assertion carries no chain of at most ${bounds.certificateChainLength} certificates`);
  const { leaf } = verifyChain(chain, { anchors, now, purpose: 'client' });
  const { nodeId, siteId, role } = nodeIdentityOf(leaf, trustDomain);
  if (role !== 'site') throw denied('wrong-role', `a node of role ${role} vouches for nobody, only a site agent does`);
  const generation = await storedGeneration(leaf, { db, nodeCa, nodeId });
  const agent = (await readNodeFacts(db, [nodeId])).get(nodeId);
  if (agent?.state === 'active' && agent.role === 'site' && agent.identityGeneration === generation) return { leaf, nodeId, siteId };
  throw denied('agent-not-valid', `site agent ${nodeId} is ${agent?.state ?? 'gone'}, or has another identity now`);
}

/** Of the agent's certificate, as it was issued here and not revoked since. */
async function storedGeneration(
  leaf: Certificate,
  { db, nodeCa, nodeId }: Pick<JoinServiceOptions, 'db' | 'nodeCa'> & { readonly nodeId: string },
): Promise<number> {
  const row = await findCertificateRow(db, issuerOf(nodeCa.spki), leaf.serial);
  if (row?.der == null || row.nodeId !== nodeId || !Buffer.from(row.der).equals(leaf.der) || row.revokedAt !== null)
    throw denied('agent-not-valid', `certificate ${leaf.serial} of site agent ${nodeId} was not issued here, or was revoked`);
  return row.generation;
}

interface Saying {
  readonly asked: Asked;
  readonly agent: SiteAgent;
  readonly options: JoinServiceOptions;
}

function assertSaid(said: site.DiscoveryAssertion, { asked, agent, options: { trustDomain, now } }: Saying): void {
  const refuse = (reason: string, message: string): never => {
    throw denied(reason, `the assertion of site agent ${agent.nodeId} ${message}`);
  };
  if (said.trustDomain !== trustDomain) refuse('wrong-trust-domain', 'is for another deployment');
  if (said.agentNodeId !== agent.nodeId || said.siteId !== agent.siteId)
    refuse('agent-differs', 'names another agent than the one that signed it');
  if (!csrSha256(asked.csr).equals(said.csrSha256)) refuse('other-key', 'is about another key than that of the request');
  const [issuedAt, expiresAt] = [Number(said.issuedAtMs), Number(said.expiresAtMs)];
  if (!(issuedAt <= now + skewMs && expiresAt > now)) refuse('assertion-expired', 'is over, or not yet in force');
  if (!(expiresAt - issuedAt <= longestAssertionMs))
    refuse('assertion-lifetime', `lives longer than ${longestAssertionMs / minute} minutes`);
}

async function assertOfItsSite(said: site.DiscoveryAssertion, agent: SiteAgent, { db }: JoinServiceOptions): Promise<void> {
  const node = (await readNodeFacts(db, [said.nodeId])).get(said.nodeId);
  if (node?.siteId === agent.siteId) return;
  throw denied('other-site', `site agent ${agent.nodeId} vouches for machines of site ${agent.siteId}, of which ${said.nodeId} is none`);
}

interface EntryState {
  readonly usedAt: number | null;
  readonly usedCsr: Uint8Array | null;
  readonly closedAt: number | null;
  readonly expiresAt: number;
}

const entryColumns = 'used_at as "usedAt", used_csr_sha256 as "usedCsr", closed_at as "closedAt", expires_at as "expiresAt"';
const isEntry = 'id = $1 and run_id = $2 and node_id = $3 and boot_nonce = $4 and token_sha256 = $5';
const use = {
  name: 'boot-entry-use',
  text: `update boot_entries set used_at = $6, used_csr_sha256 = $7
         where ${isEntry} and used_at is null and closed_at is null and expires_at > $6 returning ${entryColumns}`,
};
const look = { name: 'boot-entry-look', text: `select ${entryColumns} from boot_entries where ${isEntry}` };

const keyOf = ({ entryId, runId, nodeId, bootNonce, tokenSha256 }: site.DiscoveryAssertion): unknown[] => [
  entryId,
  runId,
  nodeId,
  bootNonce,
  tokenSha256,
];

interface Entry {
  readonly asked: Asked;
  readonly said: site.DiscoveryAssertion;
}

async function claimEntry(tx: Executor, { asked, said }: Entry, { now }: JoinServiceOptions): Promise<Claim> {
  const csr = csrSha256(asked.csr);
  // The node first, as a quarantine and the end of a run lock: node, machine, run, then entries.
  const node = await lockNode(tx, said.nodeId);
  if (node === undefined) throw denied('node-not-active', `node ${said.nodeId} is gone`);
  const [used] = await tx.query<EntryState>(use, [...keyOf(said), instant(now), csr]);
  if (used === undefined) assertRepeated((await tx.query<EntryState>(look, keyOf(said)))[0], { said, csr, now });
  const { siteId } = node;
  const claimed = (generation: number): Claim => ({
    node: { id: node.id, siteId, role: 'ramdisk', generation },
    repeated: used === undefined,
    statements: [],
  });
  if (used !== undefined) return claimed(await becomeRamdisk(tx, { node, said }, now));
  if (node.state === 'active' && node.role === 'ramdisk') return claimed(node.identityGeneration);
  throw denied('entry-over', `node ${node.id} is ${node.state}, in role ${node.role}: boot entry ${said.entryId} is over`);
}

interface Repeating {
  readonly said: site.DiscoveryAssertion;
  readonly csr: Buffer;
  readonly now: number;
}

function assertRepeated(entry: EntryState | undefined, { said: { entryId, nodeId }, csr, now }: Repeating): void {
  if (entry === undefined) throw denied('entry-unknown', `no boot entry ${entryId} of node ${nodeId} has this token`);
  if (entry.closedAt !== null) throw denied('entry-over', `boot entry ${entryId} was closed: its run is over`);
  if (entry.usedAt === null) throw denied(entry.expiresAt <= now ? 'entry-expired' : 'entry-unknown', `boot entry ${entryId} has expired`);
  if (entry.usedCsr === null) throw denied('entry-over', `boot entry ${entryId} is over: its machine has joined anew since`);
  if (!csr.equals(entry.usedCsr)) throw denied(reused, `boot entry ${entryId} was used before, with another key`);
}

/** The run that has the entry open is an operator's word that this machine may come back: also from quarantine, to be wiped. */
async function becomeRamdisk(
  tx: Executor,
  { node, said }: { node: NodeFacts; said: site.DiscoveryAssertion },
  now: number,
): Promise<number> {
  if (node.state === 'retired') throw denied('node-not-active', `node ${node.id} is retired`);
  const { entryId, runId, agentNodeId, macAddress, systemSerial, systemUuid } = said;
  const generation = await beginIdentity(tx, { node, role: 'ramdisk', evidenceId: entryId, reason: 'booted into the ramdisk', now });
  const details = { entry: entryId, run: runId, agent: agentNodeId, generation, macAddress, systemSerial, systemUuid };
  const key = `node/${node.id}/join/${generation}`;
  await appendAudit(tx, { key, actor: `node/${agentNodeId}`, action: 'node.discovered', subject: node.id, details }, now);
  return generation;
}

const reused = 'entry-reused';

interface Refused extends Entry {
  readonly error: unknown;
}

/** M68: two keys, one token. */
async function alarm(tx: Executor, { asked, said, error }: Refused, options: JoinServiceOptions): Promise<void> {
  if (!isControlError(error) || error.details['reason'] !== reused) return;
  const { entryId, nodeId, agentNodeId, runId, macAddress } = said;
  const csr = csrSha256(asked.csr).toString('hex');
  const { log, now, quarantine } = options;
  log.error(
    { event: 'join.entry-reused', nodeId, entryId, agentNodeId, macAddress },
    `a second machine joined with the token of boot entry ${entryId}`,
  );
  const details = { entry: entryId, run: runId, agent: agentNodeId, macAddress, csrSha256: csr };
  const event = {
    key: `entry/${entryId}/reused/${csr}`,
    actor: `node/${agentNodeId}`,
    action: 'node.discovery-reused',
    subject: nodeId,
    details,
  };
  await appendAudit(tx, event, now);
  await quarantine(tx, { nodeId, reason: 'discovery-token-reused', actor: `node/${agentNodeId}`, now });
}
