/**
 * The approver set that this deployment publishes, read from the very bytes that daemons are given: what counts an approval here is
 * what counts it there, whatever another column says.
 */
import type { Executor } from '../drizzle/client.ts';
import { publishedTrust } from '../drizzle/queries/trust.ts';
import { quorumOf } from '../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../pki/trust/index.ts';
import { decodeMessage, TrustBundleSchema } from '../proto/index.ts';

/** The quorum fields of an encoded TrustBundle. */
export const quorumOfBytes = (body: Uint8Array): QuorumFields => quorumOf(decodeMessage(TrustBundleSchema, body, 'trustBundle'));

/** `noQuorum` before the first publication, and while no approver set is published. */
export async function readPublishedQuorum(db: Executor): Promise<QuorumFields> {
  const published = await publishedTrust(db);
  return published === null ? noQuorum : quorumOfBytes(published.body);
}

export const hasApprovers = (quorum: QuorumFields): boolean => quorum.approverKeys.length > 0;
