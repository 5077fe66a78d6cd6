/**
 * Publishing the trust bundle: the version follows the content and is settled under the row lock of the recorded state, once a
 * process start and once a bundle change (TRUST-001 to TRUST-018, H-02). Ten processes that start at once agree on one
 * version; a process that holds replaced content changes nothing and says so.
 *
 * Two contents are never published: one without any root (H-06), and one from which a root is gone that daemons would not
 * give up, because the bundle does not say why it left or its own issuance records contradict what it says (C31).
 */

import { toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../domain/errors.ts';
import type { RemovedRootEntry } from '../domain/rotation/stages.ts';
import { settleTrustVersion } from '../domain/trust/version.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { earlierVersionOf, lockPublishedTrust, type PublishedTrust, storePublishedTrust } from '../drizzle/queries/trust.ts';
import type { PkiBundle } from '../pki/bundle/types.ts';
import { noQuorum, type QuorumFields, signTrustBundle, trustBundleOf, trustContentDigest, trustContentOf } from '../pki/trust/index.ts';
import type { Signer } from '../pki/x509/index.ts';
import { decodeMessage, SignatureSchema, SignedTrustBundleSchema } from '../proto/index.ts';
import { chooseApproverSet, keepApproverSet, markPublished, publishedSetColumns, readSetChanges, type SetChoice } from './approver-sets.ts';
import type { ServiceLog } from './log.ts';
import { quorumOfBytes } from './published-quorum.ts';

export interface PublishOptions {
  readonly db: Database;
  readonly bundle: PkiBundle;
  /** The JoinService key; default: the bundle's. */
  readonly joinSigner?: Signer;
  /** BETTER_COMPUTE_TRUST_VERSION; 0 for none (TRUST-018). */
  readonly floorOption: number;
  /** Shortest overlap from switch to removal; the rotation times of this deployment. */
  readonly overlapMs: number;
  /** The approvers that this process is told (services/approvers.ts); absent or null: it publishes those that are recorded. */
  readonly approvers?: QuorumFields | null;
  readonly processId: string;
  readonly now: number;
  readonly log: ServiceLog;
}

export interface Publication {
  readonly kind: 'unchanged' | 'publish' | 'stale';
  /** What this content is published as; for a stale one its old version. */
  readonly version: number;
  /** What the deployment publishes after this call. */
  readonly publishedVersion: number;
  readonly digest: string;
  /** About the approvers, for the operator of this process; null: all is well. */
  readonly approverWarning: string | null;
}

/** Gateways listen here for a new published version. */
export const trustChannel = 'bc_trust';

/**
 * Settles the version of this bundle's content and publishes it when it is new.
 *
 * @throws INVALID_CONFIG no-roots; INVALID_STATE root-removed-unexplained, root-removed-too-early or root-has-signed
 */
export async function settleAndPublish(options: PublishOptions): Promise<Publication> {
  const { db, bundle, floorOption, log } = options;
  if (trustContentOf(bundle).roots.length === 0) {
    throw new ControlError('INVALID_CONFIG', 'a trust bundle without any command root is never published', {
      details: { reason: 'no-roots' },
    });
  }
  const publication = await db.transaction((tx) => settle(tx, options));
  if (publication.approverWarning !== null) log.warn({ publishedVersion: publication.publishedVersion }, publication.approverWarning);
  if (publication.kind === 'stale') {
    log.warn(
      { version: publication.version, publishedVersion: publication.publishedVersion },
      `this process holds a replaced key bundle: its trust content is version ${publication.version}, the deployment publishes ${publication.publishedVersion}; nothing was changed`,
    );
  } else if (publication.kind === 'publish') {
    log.info({ version: publication.version, floorOption }, `trust version ${publication.version} published`);
  }
  return publication;
}

async function settle(tx: Executor, options: PublishOptions): Promise<Publication> {
  const { bundle, floorOption } = options;
  const recorded = await lockPublishedTrust(tx);
  const choice = await chooseSet(tx, recorded, options);
  const digest = trustContentDigest({ ...trustContentOf(bundle), quorum: choice.quorum });
  const decision = settleTrustVersion(recorded, await earlierVersionOf(tx, digest), {
    digest,
    floor: Math.max(bundle.trustVersion, floorOption),
    explicitFloor: Math.max(floorOption, bundle.republish?.version ?? 0),
  });
  const { kind, version } = decision;
  const told = { kind, version, digest, approverWarning: choice.warning };
  if (decision.kind === 'stale') return { ...told, publishedVersion: decision.currentVersion };
  if (decision.kind === 'publish') {
    if (recorded !== null) await assertRemovalsExplained(tx, recorded, options);
    await publish(tx, options, { version, digest, choice });
  }
  return { ...told, publishedVersion: version };
}

async function chooseSet(tx: Executor, recorded: PublishedTrust | null, { bundle, approvers = null }: PublishOptions): Promise<SetChoice> {
  return chooseApproverSet({
    configured: approvers,
    published: recorded === null ? noQuorum : quorumOfBytes(recorded.body),
    introduced: (await readSetChanges(tx)).at(-1) ?? null,
    trustDomain: bundle.trustDomain,
  });
}

interface Next {
  readonly version: number;
  readonly digest: string;
  readonly choice: SetChoice;
}

async function publish(tx: Executor, options: PublishOptions, { version, digest, choice }: Next): Promise<void> {
  const { bundle, processId, now } = options;
  const { quorum, isIntroduced } = choice;
  if (isIntroduced) await keepApproverSet(tx, { quorum, version, by: processId, now });
  await markPublished(tx, Number(quorum.approverSetEpoch), version);
  const signer = options.joinSigner ?? bundle.joinSigning.signer();
  const trust = trustBundleOf(bundle, version, { ...quorum, changes: await readSetChanges(tx) });
  const signed = decodeMessage(SignedTrustBundleSchema, await signTrustBundle(signer, trust), 'trustBundle');
  if (signed.signature === undefined) throw new ControlError('INTERNAL', 'the trust bundle was not signed');
  await storePublishedTrust(tx, {
    version,
    digest,
    roots: [...bundle.commandRootsById.keys()].sort(),
    body: signed.body,
    signature: toBinary(SignatureSchema, signed.signature),
    publishedAt: now,
    publishedBy: processId,
    reason: reasonOf(options, version),
    approverSet: publishedSetColumns(quorum),
  });
  await tx.query({ text: 'select pg_notify($1, $2)' }, [trustChannel, String(version)]);
}

/** Only an order by name publishes replaced content again; the history says whose. */
function reasonOf({ bundle, floorOption }: PublishOptions, version: number): string {
  if (bundle.republish !== null && bundle.republish.version === version) return `${bundle.republish.reason} (${bundle.republish.actor})`;
  return floorOption === version ? 'BETTER_COMPUTE_TRUST_VERSION' : '';
}

async function assertRemovalsExplained(tx: Executor, recorded: PublishedTrust, options: PublishOptions): Promise<void> {
  const { bundle, overlapMs, now } = options;
  for (const id of recorded.roots.filter((root) => !bundle.commandRootsById.has(root))) {
    const entry = bundle.commandRoots.removed.find((removed) => removed.id === id);
    const signed = await readIssuance(tx, id, now - overlapMs);
    const refusal = judgeRemoval(entry, signed, overlapMs);
    if (refusal === null) continue;
    throw new ControlError('INVALID_STATE', `not publishing: root ${id.slice(0, 12)} ${refusal.message}`, {
      details: { reason: refusal.reason, root: id },
    });
  }
}

interface Issuance {
  /** A worker certificate under the root was recorded at any time. */
  readonly ever: boolean;
  /** … and was valid within the overlap. */
  readonly recently: boolean;
}

/** Pure: may this root leave what is published? null: yes. */
export function judgeRemoval(
  entry: RemovedRootEntry | undefined,
  issuance: Issuance,
  overlapMs: number,
): { readonly reason: string; readonly message: string } | null {
  if (entry === undefined) {
    const message = issuance.recently
      ? `would be removed although it signed within the last ${overlapMs / 3_600_000} h: rotate with add, switch and drop`
      : 'would be removed without a record of why: rotate with add, switch and drop';
    return { reason: 'root-removed-unexplained', message };
  }
  if (entry.forcedReason !== '') return null;
  if (entry.switchedAt === 0)
    return issuance.ever ? { reason: 'root-has-signed', message: 'is recorded as never used, but certified worker keys' } : null;
  if (entry.removedAt - entry.switchedAt >= overlapMs) return null;
  return { reason: 'root-removed-too-early', message: `would be removed less than ${overlapMs / 3_600_000} h after it last signed` };
}

const issued = {
  name: 'trust-issuance',
  text: `select count(*) > 0 as ever, coalesce(bool_or(not_after > $2), false) as recently from worker_certs where root_id = $1`,
};

async function readIssuance(tx: Executor, rootId: string, since: number): Promise<Issuance> {
  const [row] = await tx.query<Issuance>(issued, [rootId, instant(since)]);
  return row ?? { ever: false, recently: false };
}
