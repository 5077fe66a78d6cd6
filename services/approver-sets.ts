/**
 * Which approver set the deployment publishes (APPR-020 to APPR-026, H-10, A-PKI-14, A-PKI-15). Three speak: what is published, the table
 * of sets that were introduced properly, and the configuration of the process that publishes. The highest epoch wins; the server
 * never invents an epoch, and none is taken back.
 *
 * A set is introduced properly when it is the first, or signed by the set before it and by its own threshold. One that its own approvers
 * have not signed is not published: machines would follow it and nobody could lead them back (H-10). One that nobody signed is
 * published all the same: machines without approvers take it, the others keep theirs until it is signed (APPR-023, APPR-025).
 */
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { signersOfSet, validateQuorum, verifyApproverSetChange } from '../pki/quorum/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../pki/trust/index.ts';
import { appendAudit } from './audit.ts';
import { hasApprovers, readPublishedQuorum } from './published-quorum.ts';

/** How many changes a bundle carries. */
export const carriedChanges = 16;

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
const epochOf = ({ approverSetEpoch }: QuorumFields): number => Number(approverSetEpoch);
const isSameSet = (a: QuorumFields, b: QuorumFields): boolean => approverSetDigest(a) === approverSetDigest(b);

interface SetJson {
  readonly keys: readonly { readonly kid: string; readonly spki: string }[];
  readonly threshold: number;
  readonly tiers: QuorumFields['tiers'];
  readonly unbatchedDestructivePerHour: number;
}

/** As the columns keep it. */
export const approverSetJson = (quorum: QuorumFields): SetJson => ({
  keys: quorum.approverKeys.map(({ kid, spki }) => ({ kid, spki: base64url(spki) })),
  threshold: quorum.approverThreshold,
  tiers: quorum.tiers,
  unbatchedDestructivePerHour: quorum.unbatchedDestructivePerHour,
});

interface ChangeRow {
  readonly epoch: number;
  readonly set: SetJson;
  readonly signatures: readonly { readonly kid: string; readonly sig: string }[];
}

const lastChanges = {
  name: 'approver-sets-last',
  text: `select * from (select epoch, approver_set as set, signatures from approver_set_changes order by epoch desc limit ${carriedChanges}) c order by epoch`,
};

/** The last sets that were introduced properly, newest last. */
export async function readSetChanges(db: Executor): Promise<QuorumFields[]> {
  const rows = await db.query<ChangeRow>(lastChanges);
  return rows.map(({ epoch, set, signatures }) => ({
    approverKeys: set.keys.map(({ kid, spki }) => ({ kid, spki: new Uint8Array(Buffer.from(spki, 'base64url')) })),
    approverThreshold: set.threshold,
    tiers: set.tiers,
    unbatchedDestructivePerHour: set.unbatchedDestructivePerHour,
    approverSetSignatures: signatures.map(({ kid, sig }) => ({ kid, sig: new Uint8Array(Buffer.from(sig, 'base64url')) })),
    approverSetEpoch: epoch,
  }));
}

export interface SetSources {
  /** What this process is told; null: nothing. */
  readonly configured: QuorumFields | null;
  readonly published: QuorumFields;
  /** The last set that was introduced properly; null before the first. */
  readonly introduced: QuorumFields | null;
  readonly trustDomain: string;
}

export interface SetChoice {
  readonly quorum: QuorumFields;
  /** It belongs into the table: the first, or one with all its signatures. */
  readonly isIntroduced: boolean;
  /** For the operator; null: all is well. */
  readonly warning: string | null;
}

/** Pure: what is published next. */
export function chooseApproverSet(sources: SetSources): SetChoice {
  const base = baseOf(sources);
  const { configured } = sources;
  if (configured === null || epochOf(configured) < epochOf(base)) {
    const isOlder = configured !== null && !isSameSet(configured, base);
    return { quorum: base, isIntroduced: false, warning: isOlder ? olderThan(configured, base) : null };
  }
  if (epochOf(configured) === epochOf(base) && isSameSet(configured, base)) return moreSignatures(sources, base, configured);
  return changeTo(sources, base, configured);
}

/** The highest epoch of what is recorded; a set that was introduced before one that was only published. */
function baseOf({ published, introduced }: SetSources): QuorumFields {
  if (introduced === null) return published;
  return epochOf(published) > epochOf(introduced) ? published : introduced;
}

const olderThan = (configured: QuorumFields, base: QuorumFields): string =>
  `this process is configured with the approver set of epoch ${epochOf(configured)}, the deployment publishes epoch ${epochOf(base)}: bring BETTER_COMPUTE_APPROVER_KEYS and its signatures up to date`;

/** Signatures may come after the set (APPR-013): more of them are another content, and reach machines that lacked them. */
function moreSignatures(sources: SetSources, base: QuorumFields, configured: QuorumFields): SetChoice {
  const known = new Set(base.approverSetSignatures.map(({ kid }) => kid));
  const added = configured.approverSetSignatures.filter(({ kid }) => !known.has(kid));
  const quorum = { ...base, approverSetSignatures: [...base.approverSetSignatures, ...added] };
  const { introduced } = sources;
  const isRecorded = introduced !== null && epochOf(introduced) === epochOf(base) && isSameSet(introduced, base);
  if (!isRecorded) return changeTo(sources, base, quorum);
  return { quorum, isIntroduced: added.length > 0, warning: null };
}

function changeTo({ introduced, trustDomain }: SetSources, base: QuorumFields, next: QuorumFields): SetChoice {
  // A fleet without approvers takes a set as it comes (QUO-052).
  if (introduced === null || (!hasApprovers(introduced) && epochOf(next) > epochOf(introduced)))
    return { quorum: next, isIntroduced: true, warning: null };
  const { approverSetSignatures: signatures } = next;
  const change = { from: introduced, to: next, epoch: epochOf(next), signatures, trustDomain };
  const { byOld, problem } = verifyApproverSetChange(change);
  if (epochOf(next) > epochOf(introduced) && problem === null) return { quorum: next, isIntroduced: true, warning: null };
  if (epochOf(next) > epochOf(introduced) && byOld.length >= Math.max(1, introduced.approverThreshold)) {
    const warning = `the approver set of epoch ${epochOf(next)} is not published: ${problem}; its own approvers must sign it too: better-compute batch sign-approvers --epoch ${epochOf(next)}`;
    return { quorum: base, isIntroduced: false, warning };
  }
  return { quorum: next, isIntroduced: false, warning: unsigned(introduced, base, next) };
}

/** APPR-024: names the epoch that the current approvers must sign. */
function unsigned(introduced: QuorumFields, base: QuorumFields, next: QuorumFields): string {
  const epoch = Math.max(epochOf(base), epochOf(next), epochOf(introduced)) + 1;
  return `the approver set was changed without the signatures of ${introduced.approverThreshold} current approvers: machines that hold approvers keep theirs. Let the current and the new approvers run better-compute batch sign-approvers --epoch ${epoch} and set pki.approvers.epoch and setSignatures (BETTER_COMPUTE_APPROVER_SET_SIGNATURES)`;
}

const keep = {
  name: 'approver-sets-keep',
  text: `insert into approver_set_changes (epoch, approver_set, approver_set_sha256, signatures, published_version, created_at, created_by)
         values ($1, $2, decode($3, 'hex'), $4, $5, $6, $7)
         on conflict (epoch) do update set signatures = excluded.signatures,
           published_version = coalesce(approver_set_changes.published_version, excluded.published_version)
         where approver_set_changes.approver_set_sha256 = excluded.approver_set_sha256`,
};

interface Kept {
  readonly quorum: QuorumFields;
  /** null: not published yet. */
  readonly version: number | null;
  readonly by: string;
  readonly now: number;
}

/** Writes a set into the table, or adds signatures to it there. */
export async function keepApproverSet(tx: Executor, { quorum, version, by, now }: Kept): Promise<void> {
  const signatures = quorum.approverSetSignatures.map(({ kid, sig }) => ({ kid, sig: base64url(sig) }));
  const json = [JSON.stringify(approverSetJson(quorum)), approverSetDigest(quorum), JSON.stringify(signatures)];
  await tx.query(keep, [epochOf(quorum), ...json, version, instant(now), by]);
}

const published = {
  name: 'approver-sets-published',
  text: 'update approver_set_changes set published_version = $2 where epoch = $1 and published_version is null',
};
export const markPublished = async (tx: Executor, epoch: number, version: number): Promise<void> =>
  void (await tx.query(published, [epoch, version]));

const waiting = { name: 'approver-sets-waiting', text: 'select epoch from approver_set_changes where published_version is null limit 1' };
/** A set was introduced by a workflow and is not published yet. */
export const hasUnpublishedSet = async (db: Executor): Promise<boolean> => (await db.query(waiting)).length > 0;

export interface PublishSetRequest {
  /** With its epoch and all signatures, of the current and of its own approvers. */
  readonly quorum: QuorumFields;
  readonly actor: string;
}

export interface StoredSet {
  readonly epoch: number;
  /** false: the same change was stored before. */
  readonly changed: boolean;
  readonly byOld: readonly string[];
  readonly byNew: readonly string[];
}

const lockTable = { name: 'approver-sets-lock', text: 'lock table approver_set_changes in share row exclusive mode' };

/**
 * Stores a change that the approvers signed; every api publishes the highest epoch within seconds.
 *
 * @throws INVALID_CONFIG for a set that cannot be one; INVALID_STATE stale-epoch, or approver-set-unsigned with who is missing (H-10)
 */
export async function publishApproverSet(
  db: Database,
  { quorum, actor }: PublishSetRequest,
  { now, trustDomain }: { now: number; trustDomain: string },
): Promise<StoredSet> {
  validateQuorum(quorum);
  const epoch = epochOf(quorum);
  return db.transaction(async (tx) => {
    await tx.query(lockTable);
    const from = (await readSetChanges(tx)).at(-1) ?? noQuorum;
    const facts = { epoch, quorum, trustDomain };
    const signers = {
      byOld: signersOfSet(from, facts, quorum.approverSetSignatures),
      byNew: signersOfSet(quorum, facts, quorum.approverSetSignatures),
    };
    if (epochOf(from) === epoch && isSameSet(from, quorum)) return { epoch, changed: false, ...signers };
    const highest = Math.max(epochOf(from), epochOf(await readPublishedQuorum(tx)));
    if (epoch <= highest)
      throw refused('stale-epoch', `the approver set of epoch ${epoch} comes after epoch ${highest}: let it be signed for ${highest + 1}`);
    const { problem } = verifyApproverSetChange({ from, to: quorum, epoch, signatures: quorum.approverSetSignatures, trustDomain });
    if (problem !== null) throw refused('approver-set-unsigned', `the approver set of epoch ${epoch} cannot be published: ${problem}`);
    await keepApproverSet(tx, { quorum, version: null, by: actor, now });
    const details = { sha256: approverSetDigest(quorum), before: approverSetDigest(from), byOld: signers.byOld, byNew: signers.byNew };
    await appendAudit(tx, { key: `approver-set/${epoch}`, actor, action: 'approver-set.change', subject: `epoch ${epoch}`, details }, now);
    return { epoch, changed: true, ...signers };
  });
}

const refused = (reason: string, message: string): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', message, { details: { reason } });

/** The columns of trust_bundle_state (TRUST-006); null without approvers. */
export const publishedSetColumns = (quorum: QuorumFields): { json: string | null; sha256: string | null; epoch: number } => ({
  json: hasApprovers(quorum) ? JSON.stringify(approverSetJson(quorum)) : null,
  sha256: hasApprovers(quorum) ? approverSetDigest(quorum) : null,
  epoch: epochOf(quorum),
});
