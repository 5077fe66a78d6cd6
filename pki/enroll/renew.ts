/** The proof of possession of a renewal (RENEW-002): the current key signs the new CSR, the node id and the node's clock. */
import { createHash } from 'node:crypto';
import { type Signature, signingInput, u64be } from '../../proto/index.ts';
import { signEnvelope, verifyEnvelope } from '../envelope/index.ts';
import type { Signer } from '../x509/index.ts';

export interface RenewStatement {
  readonly csr: Uint8Array;
  readonly nodeId: string;
  /** The daemon's clock, Unix milliseconds. */
  readonly timeMs: number | bigint;
}

const partsOf = ({ csr, nodeId, timeMs }: RenewStatement): [Uint8Array, string, Uint8Array] => [csr, nodeId, u64be(timeMs)];

/** The signed bytes. */
export const renewStatement = (statement: RenewStatement): Uint8Array => signingInput('renew', partsOf(statement));

/**
 * Lower-case hex SHA-256 of the statement: what a replay cache remembers. Never the signature, which has a twin (r, n − s)
 * for the same statement (RENEW-007).
 */
export const renewStatementId = (statement: RenewStatement): string => createHash('sha256').update(renewStatement(statement)).digest('hex');

export const signRenewProof = (signer: Signer, statement: RenewStatement): Promise<Signature> =>
  signEnvelope(signer, 'renew', partsOf(statement));

/**
 * @param key SPKI of the certificate that is being renewed, proven by its chain
 * @throws BAD_SIGNATURE when that key did not sign this CSR, node id and time
 */
export const verifyRenewProof = (proof: Signature | undefined, statement: RenewStatement, key: Uint8Array): void =>
  verifyEnvelope({ signature: proof, purpose: 'renew', parts: partsOf(statement), key });
