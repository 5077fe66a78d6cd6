/**
 * Signing again (H-05): nothing signed under a root survives its drop, and nothing that waits outlives its signer. Bodies stay
 * byte for byte; only signatures change, and only of what has not ended.
 *
 * Threat model: the rows lie in a database that others may write, and this process signs. It signs again only what a worker key under a
 * root of its own bundle has signed before. What does not verify is withdrawn, and the trail says so: an edited command is cancelled,
 * an edited desired state taken away, until its writer makes it anew from its sources; the machine keeps what it holds meanwhile. The
 * same befalls what a forced drop left behind: whoever stole a root must not have its commands signed under the next one.
 */
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { commandStates } from '../domain/commands/states.ts';
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { isPublished, type NewSignature, readResignCandidates, replaceSignatures } from '../drizzle/queries/commands.ts';
import { queueCompletions } from '../drizzle/queries/dispatch.ts';
import { type IntentPurpose, signCommand, signDesiredState, verifyIntent, type WorkerKey } from '../pki/envelope/index.ts';
import { parseCertificate } from '../pki/x509/index.ts';
import { SignatureSchema } from '../proto/index.ts';
import { appendAudit } from './audit.ts';
import type { WorkerKeyProvider } from './worker-keys.ts';

export interface ResignOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
  /** DER of the command roots of this process's bundle: what none of them vouches for is withdrawn. */
  readonly roots: readonly Uint8Array[];
  readonly now: number;
  /** What is signed under this root. */
  readonly underRoot?: string;
  /** What is signed by a key that ends before this instant. */
  readonly expiringBefore?: number;
  /** What is signed under a root that is not published: a forced drop outran it, and no daemon takes it as it is. */
  readonly underUnpublished?: boolean;
  readonly pageSize?: number;
  readonly onProgress?: (done: number) => void;
}

export interface Resigned {
  readonly commands: number;
  readonly specs: number;
  /** Commands and specs whose signature did not verify: cancelled, taken away. */
  readonly withdrawn: number;
}

/**
 * @throws INVALID_STATE when this process still signs under `underRoot`: signing again would change nothing
 */
export async function resignCommands(options: ResignOptions): Promise<Resigned> {
  const progress = { done: 0 };
  const commands = await resignAll(options, progress, resignCommandPage);
  const specs = await resignAll(options, progress, resignSpecPage);
  return { commands: commands.signed, specs: specs.signed, withdrawn: commands.withdrawn + specs.withdrawn };
}

interface Counts {
  readonly signed: number;
  readonly withdrawn: number;
}

interface Page extends Counts {
  /** Where the next page begins; null at the end. */
  readonly afterId: string | null;
}

type ResignPage = (options: ResignOptions, worker: WorkerKey, afterId: string) => Promise<Page>;

async function resignAll(options: ResignOptions, progress: { done: number }, resignPage: ResignPage): Promise<Counts> {
  let [signed, withdrawn] = [0, 0];
  for (let afterId: string | null = ''; afterId !== null; ) {
    const worker = await options.worker.current();
    assertSignsElsewhere(worker, options);
    const page: Page = await resignPage(options, worker, afterId);
    signed += page.signed;
    withdrawn += page.withdrawn;
    progress.done += page.signed;
    options.onProgress?.(progress.done);
    afterId = page.afterId;
  }
  return { signed, withdrawn };
}

interface SignedRow {
  readonly id: string;
  readonly body: Uint8Array;
  /** An encoded Signature. */
  readonly signature: Uint8Array;
}

/** Why the stored signature vouches for nothing; null when it does. A signer that has ended vouches for what it signed while it lived. */
function faultOf({ body, signature }: SignedRow, purpose: IntentPurpose, roots: readonly Uint8Array[]): string | null {
  try {
    const parsed = fromBinary(SignatureSchema, signature);
    const [leaf] = parsed.chain;
    const now = leaf === undefined ? 0 : parseCertificate(leaf).notAfter;
    verifyIntent({ purpose, body, signature: parsed, roots, now, required: true });
    return null;
  } catch (error) {
    return error instanceof ControlError && error.code !== 'INTERNAL' ? error.message : 'its signature does not decode';
  }
}

interface Sorted<R extends SignedRow> {
  readonly good: readonly R[];
  readonly bad: readonly { readonly id: string; readonly why: string }[];
}

function sortOut<R extends SignedRow>(rows: readonly R[], purpose: IntentPurpose, roots: readonly Uint8Array[]): Sorted<R> {
  const judged = rows.map((row) => ({ row, why: faultOf(row, purpose, roots) }));
  return {
    good: judged.filter(({ why }) => why === null).map(({ row }) => row),
    bad: judged.flatMap(({ row, why }) => (why === null ? [] : [{ id: row.id, why }])),
  };
}

function assertSignsElsewhere(worker: WorkerKey, { underRoot }: ResignOptions): void {
  if (worker.rootId !== underRoot) return;
  throw new ControlError('INVALID_STATE', `this process still signs under root ${underRoot.slice(0, 12)}`, {
    details: { reason: 'signs-under-root', root: underRoot },
  });
}

const pageOf = (options: ResignOptions, afterId: string) => ({
  afterId,
  underRoot: options.underRoot ?? null,
  expiringBefore: options.expiringBefore ?? null,
  underUnpublished: options.underUnpublished ?? false,
  limit: options.pageSize ?? 500,
});

async function resignCommandPage(options: ResignOptions, worker: WorkerKey, afterId: string): Promise<Page> {
  const page = pageOf(options, afterId);
  const candidates = await readResignCandidates(options.db, page);
  const { good, bad } = sortOut(candidates, 'command', options.roots);
  const signatures = await Promise.all(
    good.map(
      async ({ id, body }): Promise<NewSignature> => ({
        id,
        signature: toBinary(SignatureSchema, await signCommand(worker, body)),
        signerRoot: worker.rootId,
        signerNotAfter: worker.notAfter,
      }),
    ),
  );
  for (const row of bad) await withdrawCommand(options, row);
  const last = candidates.at(-1);
  return {
    signed: await replaceSignatures(options.db, signatures),
    withdrawn: bad.length,
    afterId: candidates.length < page.limit || last === undefined ? null : last.id,
  };
}

const cancel = {
  name: 'commands-withdraw',
  text: `update node_commands set state = ${commandStates.cancelled}, reject_reason = $2, finished_at = $3 where id = $1 and state < 2 returning id`,
};

type Withdrawn = Sorted<SignedRow>['bad'][number];

const withdrawCommand = ({ db, now }: ResignOptions, { id, why }: Withdrawn): Promise<void> =>
  db.transaction(async (tx) => {
    const rows = await tx.query(cancel, [id, `not signed again: ${why}`, instant(now)]);
    if (rows.length === 0) return;
    await queueCompletions(tx, [id], now);
    await recordWithdrawal(tx, { action: 'command.withdrawn', key: `command/${id}/withdrawn`, id, why }, now);
  });

async function recordWithdrawal(
  tx: Executor,
  { action, key, id, why }: Withdrawn & { readonly action: string; readonly key: string },
  now: number,
): Promise<void> {
  await appendAudit(tx, { key, actor: 'control-plane', action, subject: id, details: { why } }, now);
}

const specCandidates = {
  name: 'specs-resign-read',
  text: `select id, spec_body as body, spec_signature as signature, generation from nodes where spec_body is not null and id > $1
           and (spec_signer_root = $2 or spec_signer_not_after < $3 or ($5 and not ${isPublished('spec_signer_root')})) order by id limit $4`,
};
/** The generation is compared: a spec that was written meanwhile carries its own signature. */
const specResign = {
  name: 'specs-resign',
  text: `update nodes n set spec_signature = i.signature, spec_signer_root = $4, spec_signer_not_after = $5
         from unnest($1::text[], $2::bigint[], $3::bytea[]) as i(id, generation, signature)
         where n.id = i.id and n.generation = i.generation returning n.id`,
};

async function resignSpecPage(options: ResignOptions, worker: WorkerKey, afterId: string): Promise<Page> {
  const { limit, underRoot, expiringBefore, underUnpublished } = pageOf(options, afterId);
  const values = [afterId, underRoot, expiringBefore === null ? null : instant(expiringBefore), limit, underUnpublished];
  const rows = await options.db.query<SignedRow & { generation: number }>(specCandidates, values);
  const { good, bad } = sortOut(rows, 'desired-state', options.roots);
  const signatures = await Promise.all(good.map(async ({ body }) => toBinary(SignatureSchema, await signDesiredState(worker, body))));
  const written = await options.db.query(specResign, [
    good.map((row) => row.id),
    good.map((row) => row.generation),
    signatures,
    worker.rootId,
    instant(worker.notAfter),
  ]);
  for (const row of bad) await withdrawSpec(options, row);
  return { signed: written.length, withdrawn: bad.length, afterId: rows.length < limit ? null : (rows.at(-1)?.id ?? null) };
}

/** The source goes with it: whoever writes the spec next does not build on what nobody vouches for. */
const clear = {
  name: 'specs-withdraw',
  text: `update nodes set spec = '{}', spec_body = null, spec_signature = null, spec_signer_root = null, spec_signer_not_after = null
         where id = $1 and spec_body is not null returning generation`,
};

const withdrawSpec = ({ db, now }: ResignOptions, { id, why }: Withdrawn): Promise<void> =>
  db.transaction(async (tx) => {
    const [cleared] = await tx.query<{ generation: number }>(clear, [id]);
    if (cleared === undefined) return;
    const key = `node/${id}/spec/${cleared.generation}/withdrawn`;
    await recordWithdrawal(tx, { action: 'node.spec.withdrawn', key, id, why }, now);
  });

const under = {
  name: 'signed-under',
  text: `select (select count(*) from node_commands where state < 2 and signer_root = $1) +
                (select count(*) from nodes where spec_signer_root = $1 and spec_body is not null) as count`,
};

/** How many unfinished commands and stored specs are signed under a root: zero before its drop. */
export async function countSignedUnder(db: Executor, rootId: string): Promise<number> {
  return (await db.query<{ count: number }>(under, [rootId]))[0]?.count ?? 0;
}
