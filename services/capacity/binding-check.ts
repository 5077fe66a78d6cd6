/**
 * Whether a node itself says that an allocation is bound (SIGN-014): the statement is checked against the node's own certificate in
 * node_certs, found by the key that the signature names. What the gateway says of who speaks decides nothing beyond which node is looked at.
 */

import { toBinary } from '@bufbuild/protobuf';
import { type BindingStatement, judgeBinding } from '../../domain/capacity/binding.ts';
import type { NodeRole } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { verifyEventReport } from '../../pki/events/index.ts';
import { parseCertificate, parseSpiffeId } from '../../pki/x509/index.ts';
import { type Signature, SignatureSchema } from '../../proto/index.ts';
import { type BindingEvidence, findReservation } from './reservations.ts';

export interface SignedBinding {
  /** The node whose session brought it. */
  readonly nodeId: string;
  readonly statement: BindingStatement;
  /** An encoded EventBody that holds the statement. */
  readonly body: Uint8Array;
  readonly signature: Signature | undefined;
}

/**
 * @returns what is kept with the reservation
 * @throws PERMISSION_DENIED or INVALID_STATE, details.reason one of the words of an EventReceipt; BAD_SIGNATURE
 */
export type AllocationBindingCheck = (db: Executor, binding: SignedBinding, now: number) => Promise<BindingEvidence>;

interface CertificateRow {
  readonly issuer: string;
  readonly serial: string;
  readonly nodeId: string;
  readonly spiffeId: string;
  readonly role: NodeRole;
  readonly generation: number;
  readonly der: Uint8Array;
  readonly notBefore: number;
  readonly notAfter: number;
  readonly revokedAt: number | null;
}

const byKey = {
  name: 'node-certs-by-key',
  text: `select issuer, serial, node_id as "nodeId", spiffe_id as "spiffeId", role, generation, cert_der as der,
           not_before as "notBefore", not_after as "notAfter", revoked_at as "revokedAt"
         from node_certs where node_id = $1 and spki_sha256 = $2 and cert_der is not null
         order by (revoked_at is null) desc, not_after desc limit 1`,
};

/** What `capacity.attestedBindings` is where commands are signed (SIGN-013). */
export const pkiAllocationBindingCheck =
  (): AllocationBindingCheck =>
  async (db, { nodeId, statement, body, signature }, now) => {
    const certificate = await certificateOf(db, { nodeId, kid: signature?.kid ?? '' });
    const node = (await readNodeFacts(db, [nodeId])).get(nodeId);
    const reservation = (await findReservation(db, statement.reservationId)) ?? null;
    const verdict = judgeBinding({
      statement,
      node: node ?? { id: nodeId, state: 'unknown', identityGeneration: 0 },
      certificate: certificate === null ? null : { ...certificate, trustDomain: parseSpiffeId(certificate.spiffeId).trustDomain },
      reservation,
      now,
    });
    if (verdict.kind === 'refused')
      throw new ControlError(verdict.word === 'ended' ? 'INVALID_STATE' : 'PERMISSION_DENIED', verdict.why, {
        details: { reason: verdict.word },
      });
    const { der, issuer, serial } = certificate as CertificateRow;
    // The certificate's own bytes name the key, not the column that found it.
    verifyEventReport({ body, signature }, parseCertificate(der).spki);
    return { body, signature: toBinary(SignatureSchema, signature as Signature), certIssuer: issuer, certSerial: serial };
  };

async function certificateOf(
  db: Executor,
  { nodeId, kid }: { readonly nodeId: string; readonly kid: string },
): Promise<CertificateRow | null> {
  if (!/^[0-9a-f]{64}$/.test(kid)) return null;
  return (await db.query<CertificateRow>(byKey, [nodeId, Buffer.from(kid, 'hex')]))[0] ?? null;
}
