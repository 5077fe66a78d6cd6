/**
 * Held commands into their logs, range by range (BAT-062, H-05): fresh body, fresh signature, place, deadline. Repeated or cut anywhere,
 * a range moves each command once: only rows that are still held move.
 *
 * Threat model: the rows lie in a database that others may write, and this process signs. Where a quorum is published, it signs only what it
 * could prove to a machine: the approvals stand by the published set and this process's own trust domain, and the command that the row
 * holds is the leaf that its proof shows to be in that scope. Whoever adds or edits a held row gets no signature for it.
 */
import { createHash } from 'node:crypto';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { anyUnpack } from '@bufbuild/protobuf/wkt';
import { batchStateAt } from '../../domain/batch/states.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Database, Executor } from '../../drizzle/client.ts';
import {
  findBatches,
  type HeldCommand,
  type Release,
  type ReleasedCommand,
  readHeld,
  releaseHeld,
  type StoredBatch,
  shareBatch,
} from '../../drizzle/queries/batches.ts';
import { signCommand, type WorkerKey } from '../../pki/envelope/index.ts';
import { batchSubject, decodeProof, isIncluded, leafHash } from '../../pki/quorum/index.ts';
import { type CommandBody, CommandBodySchema, protocolRegistry, SignatureSchema } from '../../proto/index.ts';
import { encodeBody } from '../command-body.ts';
import { readPublishedQuorum } from '../published-quorum.ts';
import type { WorkerKeyProvider } from '../worker-keys.ts';
import { standingOf } from './approve.ts';
import { notOpen, tooFewApprovals, unknownBatch } from './refusals.ts';
import type { ReleasedRange } from './types.ts';

export interface ReleaseRequest {
  readonly batchId: string;
  /** Member index, inclusive. */
  readonly from: number;
  /** Member index, exclusive. */
  readonly to: number;
  /** Server time after which none of them starts; never after the end of the batch. */
  readonly deadlineMs: number;
}

export interface ReleaseContext {
  readonly now: number;
  readonly trustDomain: string;
  readonly poke?: (nodeIds: readonly string[]) => void;
  /** After each page, with the commands released so far. */
  readonly onProgress?: (released: number) => void;
}

/** Commands that are signed and moved by one statement. */
const pageSize = 1_000;

/**
 * @throws NOT_FOUND; INVALID_STATE when the batch is not approved, its window is over, or the published set asks for more approvals;
 *   BAD_SIGNATURE (held-command-differs) when a held row is not what its leaf says; STALE_BUNDLE when this process must not sign
 */
export async function releaseRange(
  db: Database,
  worker: WorkerKeyProvider,
  { request, context }: { readonly request: ReleaseRequest; readonly context: ReleaseContext },
): Promise<ReleasedRange> {
  const batch = await assertReleasable(db, request.batchId, context);
  const end = Math.min(request.to, batch.members);
  const pages = Array.from({ length: Math.max(0, Math.ceil((end - request.from) / pageSize)) }, (_, at) => request.from + at * pageSize);
  const prepare = (from: number | undefined): Promise<Prepared> => {
    if (from === undefined) return Promise.resolve(nothing);
    const prepared = preparePage(db, worker, { batch, from, to: Math.min(from + pageSize, end), deadlineMs: request.deadlineMs, context });
    // Awaited when its turn comes; when an earlier page fails, nobody waits for it.
    prepared.catch(() => undefined);
    return prepared;
  };
  let released = 0;
  let next = prepare(pages[0]);
  for (const at of pages.keys()) {
    const page = await next;
    // The next page is read and signed while the database takes this one.
    next = prepare(pages[at + 1]);
    released += await movePage(db, page, { batch, context });
    context.onProgress?.(released);
  }
  return { released, existing: Math.max(0, end - request.from) - released };
}

async function assertReleasable(db: Executor, batchId: string, { now, trustDomain }: ReleaseContext): Promise<StoredBatch> {
  const [batch] = await findBatches(db, [batchId]);
  if (batch === undefined) throw unknownBatch(batchId);
  assertApproved(batch, now);
  const standing = await standingOf(db, batch, { quorum: await readPublishedQuorum(db), trustDomain });
  if (standing.have < standing.required) throw tooFewApprovals(batchId, standing);
  return batch;
}

function assertApproved(batch: StoredBatch, now: number): void {
  const state = batchStateAt(batch, now);
  if (state !== 'approved') throw notOpen(batch.id, state, 'nothing of it is released');
}

interface Page {
  readonly batch: StoredBatch;
  readonly from: number;
  readonly to: number;
  readonly deadlineMs: number;
  readonly context: ReleaseContext;
}

/** Signed, and not moved yet; null: nothing was held there. */
interface Prepared {
  readonly release: Release | null;
}

const nothing: Prepared = Object.freeze({ release: null });

async function preparePage(db: Database, worker: WorkerKeyProvider, { batch, from, to, deadlineMs, context }: Page): Promise<Prepared> {
  const held = await readHeld(db, { batchId: batch.id, from, to });
  if (held.length === 0) return nothing;
  const key = await worker.current();
  const deadline = Math.min(deadlineMs, batch.notAfterMs);
  const commands = await Promise.all(
    held.flatMap((row) => (row.generation === null ? [] : [sign(key, row, { batch, deadline, generation: row.generation, context })])),
  );
  return { release: { batchId: batch.id, commands, signerRoot: key.rootId, signerNotAfter: key.notAfter, deadline } };
}

async function movePage(
  db: Database,
  { release }: Prepared,
  { batch, context }: { readonly batch: StoredBatch; readonly context: ReleaseContext },
): Promise<number> {
  if (release === null) return 0;
  const moved = await db.transaction(async (tx) => {
    // Under the batch's lock: a cancellation that came first is seen, one that comes later finds them in their logs.
    assertApproved((await shareBatch(tx, batch.id)) ?? batch, context.now);
    return releaseHeld(tx, release);
  });
  if (moved.length > 0) context.poke?.([...new Set(moved.map(({ nodeId }) => nodeId))]);
  return moved.length;
}

interface Terms {
  readonly batch: StoredBatch;
  readonly deadline: number;
  readonly generation: number;
  readonly context: ReleaseContext;
}

async function sign(key: WorkerKey, row: HeldCommand, { batch, deadline, generation, context }: Terms): Promise<ReleasedCommand> {
  const held = fromBinary(CommandBodySchema, row.body);
  assertInScope(row, held, batch);
  const { commandId, nodeId, kind, payload, batchId } = held;
  if (payload === undefined) throw differs(row, 'has no payload');
  const earlier = held.earlier === undefined ? undefined : { commandId: held.earlier.commandId, seen: held.earlier.seen ?? null };
  const body = encodeBody(
    { commandId, nodeId, kind, payload, batchId, earlier },
    { trustDomain: context.trustDomain, issuedAtMs: context.now, generation, expiresAtMs: deadline },
  );
  const bodySha256 = sha256(body);
  const signature = toBinary(SignatureSchema, await signCommand(key, body));
  return { id: row.id, nodeId: row.nodeId, generation, body, bodySha256, signature };
}

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

const differs = ({ id }: HeldCommand, what: string): ControlError<'BAD_SIGNATURE'> =>
  new ControlError('BAD_SIGNATURE', `held command ${id} ${what}: it was changed after it was put into its batch and is not signed`, {
    details: { reason: 'held-command-differs', commandId: id },
  });

/** The row's own words are those of its body, and the body is the leaf of its proof, under the root that was approved. */
function assertInScope(row: HeldCommand, body: CommandBody, { id, root, size }: StoredBatch): void {
  const { commandId, nodeId, kind, payload, batchId } = body;
  if (commandId !== row.id || nodeId !== row.nodeId || kind !== row.kind || batchId !== id)
    throw differs(row, 'says something else than its row');
  const message = payload === undefined ? undefined : anyUnpack(payload, protocolRegistry);
  if (payload === undefined || message === undefined) throw differs(row, 'has no payload that decodes');
  const subject = batchSubject({ nodeId, kind, payload: message });
  const proof = decodeProof(row.proof);
  // Which of the two leaves it is the row says; that it is one, the proof.
  const payloadSha256 = row.isBound ? sha256(payload.value) : new Uint8Array(0);
  if (!isIncluded({ hash: leafHash(id, { subject, kind, payloadSha256 }), proof, root, size }))
    throw differs(row, `(${kind} on ${subject}) is not the leaf that its proof is of`);
}
