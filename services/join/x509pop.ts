/**
 * Joining by a certificate of this deployment that ended (JOIN-005 to JOIN-007, C49): a machine that was away for up to a week shows its
 * last certificate and proves its key. It stays the node that it was, in the same generation: the log goes on where it stood.
 *
 * The proof is over the request's own nonce and CSR: whoever repeats it gets a certificate for a key that he does not have. The row
 * decides, as at a renewal: revoked, or of an earlier generation, is refused at any age. A tenant's machine vouches for nothing (ID-034),
 * and a ramdisk's identity ends with its boot.
 */
import { ControlError } from '../../domain/errors.ts';
import { day, showInstant } from '../../domain/time.ts';
import { lockNode } from '../../drizzle/queries/nodes.ts';
import { verifyEnvelope } from '../../pki/envelope/index.ts';
import {
  type Certificate,
  type CertificateRequest,
  isNodeKeyStatement,
  type NodeIdentity,
  nodeIdentityOf,
  parseTpmAkUri,
  verifyChain,
} from '../../pki/x509/index.ts';
import { bounds, decodeMessage, type X509PopEvidence, X509PopEvidenceSchema } from '../../proto/index.ts';
import { appendAudit } from '../audit.ts';
import { findCertificateRow, issuerOf, type StoredCertificate } from '../node-certs.ts';
import { csrSha256, denied } from './identity.ts';
import type { Asked, Attestor, Claim, JoinServiceOptions } from './types.ts';

/** JOIN-007. */
export const popGraceMs = 7 * day;

export const x509pop: Attestor = {
  roles: ['node', 'site'],
  async judge(asked, options) {
    const { chain, proof } = readPopEvidence(asked.request.evidence); //   1. a chain and a proof
    const leaf = verifyLeaf(chain, options); //                           2. issued under the node CA, ended a week ago at most
    const identity = identityOf(leaf, asked, options); //                 3. of the role that is asked for
    assertProof(asked, { leaf, proof }); //                               4. by the certificate's key, for this request
    assertNotAttested(leaf);
    const row = await assertIssued({ leaf, identity }, options); //       5. issued here, not revoked
    const evidence = { leaf, identity, row, csr: asked.csr };
    return {
      facts: { nodeId: identity.nodeId, siteId: identity.siteId },
      claim: (tx) => claimSame(tx, evidence, options),
      lock: async (tx) => void (await lockNode(tx, identity.nodeId)),
    };
  },
};

/** @throws MALFORMED for bytes that are none, or carry no chain */
export function readPopEvidence(evidence: Uint8Array): X509PopEvidence {
  try {
    const decoded = decodeMessage(X509PopEvidenceSchema, evidence, 'renewRequest');
    if (decoded.chain.length > 0 && decoded.chain.length <= bounds.certificateChainLength) return decoded;
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the evidence is not an X509PopEvidence', { cause, details: { reason: 'evidence' } });
  }
  throw new ControlError('MALFORMED', `the evidence carries no chain of at most ${bounds.certificateChainLength} certificates`, {
    details: { reason: 'evidence' },
  });
}

function verifyLeaf(chain: readonly Uint8Array[], { anchors, now }: JoinServiceOptions): Certificate {
  try {
    return verifyChain(chain, { anchors, now, purpose: 'client', leafGraceMs: popGraceMs }).leaf;
  } catch (error) {
    const isOver = error instanceof ControlError && error.code === 'CERTIFICATE_EXPIRED' && error.details['reason'] === 'expired';
    if (!isOver) throw error;
    throw new ControlError(
      'CERTIFICATE_EXPIRED',
      `${error.message}, more than ${popGraceMs / day} days before ${showInstant(now)}: this machine needs a new join token`,
      { cause: error, details: { reason: 're-join-token-needed' } },
    );
  }
}

function identityOf(leaf: Certificate, { request }: Asked, { trustDomain }: JoinServiceOptions): NodeIdentity {
  const identity = nodeIdentityOf(leaf, trustDomain);
  if (identity.role === request.role) return identity;
  throw denied('wrong-role', `the certificate is of role ${identity.role}, the request for ${request.role}`);
}

function assertProof({ request: { nonce, csr } }: Asked, { leaf, proof }: { leaf: Certificate; proof: X509PopEvidence['proof'] }): void {
  verifyEnvelope({ signature: proof, purpose: 'x509pop', parts: [nonce, csr], key: leaf.spki });
}

/** ID-013: only a TPM says again what a TPM said; and a key that was copied from its machine must not shed what it was bound to. */
function assertNotAttested({ uriSans, serial }: Certificate): void {
  if (uriSans.every((uri) => parseTpmAkUri(uri) === null)) return;
  throw denied('key-attestation', `the key of certificate ${serial} is attested by a TPM: this machine joins again with attestor tpm`);
}

interface Proven {
  readonly leaf: Certificate;
  readonly identity: NodeIdentity;
}

async function assertIssued({ leaf, identity }: Proven, { db, nodeCa }: JoinServiceOptions): Promise<StoredCertificate> {
  const row = await findCertificateRow(db, issuerOf(nodeCa.spki), leaf.serial);
  if (row?.der == null || row.nodeId !== identity.nodeId || !Buffer.from(row.der).equals(leaf.der))
    throw denied('not-issued-here', `certificate ${leaf.serial} was not issued here`);
  assertNotRevoked(row, leaf);
  return row;
}

function assertNotRevoked({ revokedAt }: StoredCertificate, { serial }: Certificate): void {
  if (revokedAt === null) return;
  throw new ControlError('REVOKED', `certificate ${serial} was revoked at ${showInstant(revokedAt)}`, { details: { reason: 'revoked' } });
}

/** Under the node's lock, where every end of an identity meets (JOIN-006). */
async function claimSame(
  tx: Parameters<typeof lockNode>[0],
  { leaf, identity, row, csr }: Proven & { readonly row: StoredCertificate; readonly csr: CertificateRequest },
  { nodeCa, now }: JoinServiceOptions,
): Promise<Claim> {
  const { nodeId: id, role } = identity;
  const node = await lockNode(tx, id);
  if (node?.state !== 'active') throw denied('node-not-active', `node ${id} is ${node?.state ?? 'gone'}`);
  if (node.identityGeneration !== row.generation || node.role !== role || node.siteId !== identity.siteId)
    throw denied(
      'generation-superseded',
      `certificate ${leaf.serial} is of generation ${row.generation} of node ${id}, which is in generation ${node.identityGeneration}`,
    );
  const again = await findCertificateRow(tx, issuerOf(nodeCa.spki), leaf.serial);
  if (again !== undefined) assertNotRevoked(again, leaf);
  // Of one request: a machine that asks again because the answer was lost is one event.
  const key = `node/${id}/pop/${csrSha256(csr).toString('hex')}`;
  const details = { certificate: leaf.serial, generation: row.generation, endedAt: showInstant(leaf.notAfter) };
  await appendAudit(tx, { key, actor: `node/${id}`, action: 'node.rejoin-by-certificate', subject: id, details }, now);
  const statements = leaf.uriSans.filter(isNodeKeyStatement);
  return { node: { id, siteId: node.siteId, role, generation: row.generation }, repeated: false, statements };
}
