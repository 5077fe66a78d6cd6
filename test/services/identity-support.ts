/** Requests of machines, as bcd makes them: a join with a token, a renewal with its proof. */
import { create } from '@bufbuild/protobuf';
import type { Database } from '../../drizzle/client.ts';
import { signRenewProof } from '../../pki/enroll/index.ts';
import { type Certificate, signerFromPrivateKey } from '../../pki/x509/index.ts';
import { type JoinRequest, JoinRequestSchema, type RenewRequest, RenewRequestSchema } from '../../proto/index.ts';
import { csrOf, type EnrolledNode, type NodeKey, newKey, randomBytes, testBundle } from './support.ts';

export async function joinRequest(
  key: NodeKey,
  evidence: string,
  changes: Partial<Pick<JoinRequest, 'attestor' | 'csr' | 'role' | 'nonce'>> = {},
): Promise<JoinRequest> {
  return create(JoinRequestSchema, {
    attestor: 'join-token',
    evidence: Buffer.from(evidence),
    csr: await csrOf(key),
    role: 'node',
    daemonVersion: '0.1.0',
    nonce: randomBytes(32),
    hardware: { hostname: 'metal-7', cpus: 64, memoryBytes: 1n << 40n, macAddresses: ['02:00:00:00:00:07'] },
    ...changes,
  });
}

/** The certificate rows of a node, in the order of their reservation. */
export const certificatesOf = (db: Database, nodeId: string) =>
  db.query<{ serial: string; issued: boolean; revoked: boolean; generation: number }>(
    {
      text: `select serial, cert_der is not null as issued, revoked_at is not null as revoked, generation
             from node_certs where node_id = $1 order by reserved_at`,
    },
    [nodeId],
  );

export interface Renewal {
  readonly request: RenewRequest;
  readonly peer: { chain: Uint8Array[] };
  readonly next: NodeKey;
}

export interface RenewalChanges {
  readonly timeMs?: number;
  readonly certificate?: Certificate;
  /** Signs the proof instead of the node's own. */
  readonly key?: NodeKey;
  readonly nodeId?: string;
}

export async function createRenewal(node: EnrolledNode, options: RenewalChanges & { readonly timeMs: number }): Promise<Renewal> {
  const { certificate = node.certificate, key = node.key, nodeId = node.id, timeMs } = options;
  const next = newKey();
  const csr = await csrOf(next);
  const proof = await signRenewProof(signerFromPrivateKey(key.privateKey), { csr, nodeId, timeMs });
  const chain = [certificate.der, (await testBundle()).nodeCa.certificate.der];
  return { request: create(RenewRequestSchema, { chain, csr, timeMs: BigInt(timeMs), proof }), peer: { chain }, next };
}
