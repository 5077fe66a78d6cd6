/**
 * What a site agent says of a machine that booted at its boot server (JOIN-018): that this key, of whoever asked with this address,
 * came with the token of this entry. It says it of one key for each entry and of no second one (M68).
 *
 *   the address has an entry · the token is the entry's, in constant time · the entry's time is not over ·
 *   nobody else asserted it → noted, durable → signed
 *
 * The same key may ask again: an answer is lost more often than a key is stolen, and the words are the same.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { ControlError } from '../../../domain/errors.ts';
import { minute, showInstant } from '../../../domain/time.ts';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { encodeMessage, site } from '../../../proto/index.ts';
import type { StoredIdentity } from '../../state/identity.ts';
import type { AssertRequest } from './assert-request.ts';
import { type BootEntry, type MachineRecord, standingEntry, withEntry } from './machine-record.ts';

/** Longer than any join takes; the control plane lets an entry be used once anyway. */
const assertionLifetimeMs = 10 * minute;

export type AssertionVerdict =
  | { readonly kind: 'first' | 'again'; readonly entry: BootEntry }
  /** `alarm`: it came with the right token, after another. */
  | { readonly kind: 'refuse'; readonly error: ControlError; readonly alarm: BootEntry | null };

/** @param record of the machine with the address that asks */
export function judgeAssertion(record: MachineRecord | undefined, request: AssertRequest, now: number): AssertionVerdict {
  const entry = record === undefined ? undefined : standingEntry(record);
  // Which of the two is wrong is nobody's business who has not the token.
  if (entry === undefined || !isToken(request.token, entry)) return refuse(unknown, null);
  if (now >= entry.expiresAtMs) return refuse(ended(entry), null);
  if (entry.used === null) return { kind: 'first', entry };
  return entry.used.csrSha256 === request.csrSha256 ? { kind: 'again', entry } : refuse(usedBefore(entry), entry);
}

const refuse = (error: ControlError, alarm: BootEntry | null): AssertionVerdict => ({ kind: 'refuse', error, alarm });

function isToken(token: Uint8Array, { tokenSha256 }: BootEntry): boolean {
  return timingSafeEqual(createHash('sha256').update(token).digest(), Buffer.from(tokenSha256, 'hex'));
}

/** With the entry used; what was claimed first is what is said. */
export const usedBy = (
  record: MachineRecord,
  { entryId, request, now }: { entryId: string; request: AssertRequest; now: number },
): MachineRecord => {
  const entry = record.entries.find((one) => one.entryId === entryId);
  if (entry === undefined) throw new ControlError('INTERNAL', `boot entry ${entryId} is gone while it is used`);
  const { csrSha256, macAddress, systemUuid, systemSerial } = request;
  return withEntry(record, { ...entry, used: { atMs: now, csrSha256, macAddress, systemUuid, systemSerial } });
};

/** The encoded SignedDiscoveryAssertion. @throws what signing throws */
export async function signAssertion(
  entry: BootEntry,
  { nodeId, agent, now }: { nodeId: string; agent: StoredIdentity; now: number },
): Promise<Uint8Array> {
  const { used } = entry;
  if (used === null) throw new ControlError('INTERNAL', `boot entry ${entry.entryId} is not used, and is asserted`);
  const { identity, key } = agent;
  const body = encodeMessage(
    site.DiscoveryAssertionSchema,
    {
      trustDomain: identity.trustDomain,
      siteId: identity.siteId,
      agentNodeId: identity.nodeId,
      nodeId,
      runId: entry.runId,
      entryId: entry.entryId,
      bootNonce: Buffer.from(entry.bootNonce, 'hex'),
      macAddress: used.macAddress,
      systemUuid: used.systemUuid,
      systemSerial: used.systemSerial,
      csrSha256: Buffer.from(used.csrSha256, 'hex'),
      tokenSha256: Buffer.from(entry.tokenSha256, 'hex'),
      issuedAtMs: BigInt(Math.round(now)),
      expiresAtMs: BigInt(Math.round(Math.min(now + assertionLifetimeMs, entry.expiresAtMs))),
    },
    'joinRequest',
  );
  const signature = await signEnvelope(signerFromPrivateKey(key), 'discovery', [body]);
  return encodeMessage(
    site.SignedDiscoveryAssertionSchema,
    { body, signature: { ...signature, chain: [...identity.chain] } },
    'joinRequest',
  );
}

const unknown = new ControlError('PERMISSION_DENIED', 'no boot entry of this address has this token', {
  details: { reason: 'no-entry', hint: 'start the machine anew; its run makes it another entry' },
});

const ended = ({ entryId, expiresAtMs }: BootEntry): ControlError =>
  new ControlError('PERMISSION_DENIED', `boot entry ${entryId} ended at ${showInstant(expiresAtMs)}`, {
    details: { reason: 'entry-expired' },
  });

const usedBefore = ({ entryId, used }: BootEntry): ControlError =>
  new ControlError('REPLAYED', `boot entry ${entryId} was used at ${showInstant(used?.atMs ?? 0)} by another key`, {
    details: { reason: 'entry-used', hint: 'somebody else has the token of this machine, or it started twice: look at its run' },
  });
