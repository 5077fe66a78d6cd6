/**
 * Signing again (H-05): nothing signed under a root survives its drop, and nothing that waits outlives its signer. Bodies stay
 * byte for byte; only signatures change, and only of what has not ended.
 */
import { toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { isPublished, type NewSignature, readResignCandidates, replaceSignatures } from '../drizzle/queries/commands.ts';
import { signCommand, signDesiredState, type WorkerKey } from '../pki/envelope/index.ts';
import { SignatureSchema } from '../proto/index.ts';
import type { WorkerKeyProvider } from './worker-keys.ts';

export interface ResignOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
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
}

/**
 * @throws INVALID_STATE when this process still signs under `underRoot`: signing again would change nothing
 */
export async function resignCommands(options: ResignOptions): Promise<Resigned> {
  const progress = { done: 0 };
  const commands = await resignAll(options, progress, resignCommandPage);
  const specs = await resignAll(options, progress, resignSpecPage);
  return { commands, specs };
}

interface Page {
  readonly signed: number;
  /** Where the next page begins; null at the end. */
  readonly afterId: string | null;
}

type ResignPage = (options: ResignOptions, worker: WorkerKey, afterId: string) => Promise<Page>;

async function resignAll(options: ResignOptions, progress: { done: number }, resignPage: ResignPage): Promise<number> {
  let signed = 0;
  for (let afterId: string | null = ''; afterId !== null; ) {
    const worker = await options.worker.current();
    assertSignsElsewhere(worker, options);
    const page: Page = await resignPage(options, worker, afterId);
    signed += page.signed;
    progress.done += page.signed;
    options.onProgress?.(progress.done);
    afterId = page.afterId;
  }
  return signed;
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
  const signatures = await Promise.all(
    candidates.map(
      async ({ id, body }): Promise<NewSignature> => ({
        id,
        signature: toBinary(SignatureSchema, await signCommand(worker, body)),
        signerRoot: worker.rootId,
        signerNotAfter: worker.notAfter,
      }),
    ),
  );
  const last = candidates.at(-1);
  return {
    signed: await replaceSignatures(options.db, signatures),
    afterId: candidates.length < page.limit || last === undefined ? null : last.id,
  };
}

const specCandidates = {
  name: 'specs-resign-read',
  text: `select id, spec_body as body, generation from nodes where spec_body is not null and id > $1
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
  const rows = await options.db.query<{ id: string; body: Uint8Array; generation: number }>(specCandidates, values);
  const last = rows.at(-1);
  if (last === undefined) return { signed: 0, afterId: null };
  const signatures = await Promise.all(rows.map(async ({ body }) => toBinary(SignatureSchema, await signDesiredState(worker, body))));
  const written = await options.db.query(specResign, [
    rows.map((row) => row.id),
    rows.map((row) => row.generation),
    signatures,
    worker.rootId,
    instant(worker.notAfter),
  ]);
  return { signed: written.length, afterId: rows.length < limit ? null : last.id };
}

const under = {
  name: 'signed-under',
  text: `select (select count(*) from node_commands where state < 2 and signer_root = $1) +
                (select count(*) from nodes where spec_signer_root = $1 and spec_body is not null) as count`,
};

/** How many unfinished commands and stored specs are signed under a root: zero before its drop. */
export async function countSignedUnder(db: Executor, rootId: string): Promise<number> {
  return (await db.query<{ count: number }>(under, [rootId]))[0]?.count ?? 0;
}
