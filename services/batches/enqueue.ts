/**
 * Putting commands into a batch (BAT-010 to BAT-020): the batch is the node's owner's, open, and its scope holds the command's leaf.
 * While approvals are missing, and where the batch is released in waves, the command is held: unsigned, without a place in the log.
 */
import { createHash } from 'node:crypto';
import { type Any, anyUnpack } from '@bufbuild/protobuf/wkt';
import { batchStateAt, takesCommands } from '../../domain/batch/states.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Database, Executor } from '../../drizzle/client.ts';
import { indexesOfLeaves, insertMembers, lockBatches, type NewMember, type StoredBatch } from '../../drizzle/queries/batches.ts';
import { appendCommands, type NewCommand } from '../../drizzle/queries/commands.ts';
import { batchSubject, leafHash } from '../../pki/quorum/index.ts';
import { protocolRegistry } from '../../proto/index.ts';
import { hasApprovers, readPublishedQuorum } from '../published-quorum.ts';
import { standingOf } from './approve.ts';
import { notOpen, tooFewApprovals, unknownBatch } from './refusals.ts';

export interface BatchedCommand {
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly payload: Any;
  readonly batchId: string;
}

export interface AppendToBatch {
  readonly trustDomain: string;
  readonly now: number;
  /** Makes the rows once it is known how: held ones unsigned, the others signed. */
  readonly rowsOf: (commands: readonly BatchedCommand[], how: { readonly heldUntil: number | null }) => Promise<readonly NewCommand[]>;
}

export interface AppendedToBatches {
  readonly appended: ReadonlySet<string>;
  /** Of those, the ones that were held: nobody is poked for them. */
  readonly held: ReadonlySet<string>;
}

/**
 * Appends commands of any number of batches, each batch in one transaction under its lock.
 *
 * @throws NOT_FOUND for a batch that is not there or belongs to another tenant; INVALID_STATE for one that has ended, or whose
 *   approvals no longer suffice; INVALID_INPUT (not-in-scope) for a command whose leaf it does not hold
 */
export async function appendToBatches(
  db: Database,
  commands: readonly BatchedCommand[],
  options: AppendToBatch,
): Promise<AppendedToBatches> {
  const appended = new Set<string>();
  const held = new Set<string>();
  for (const batchId of [...new Set(commands.map((command) => command.batchId))].sort()) {
    const own = commands.filter((command) => command.batchId === batchId);
    await db.transaction(async (tx) => {
      const batch = await openBatch(tx, batchId, options);
      await assertOwner(tx, batch, own);
      const members = await membersOf(tx, batch, own);
      // Judged before anything is signed: a refusal costs no signature.
      const isHeld = await mustWait(tx, batch, options);
      const rows = await options.rowsOf(own, { heldUntil: isHeld ? batch.notAfterMs : null });
      const ids = await appendCommands(tx, rows);
      await insertMembers(
        tx,
        batchId,
        members.filter(({ commandId }) => ids.has(commandId)),
      );
      for (const id of ids) {
        appended.add(id);
        if (isHeld) held.add(id);
      }
    });
  }
  return { appended, held };
}

async function openBatch(tx: Executor, batchId: string, { now }: AppendToBatch): Promise<StoredBatch> {
  const [batch] = await lockBatches(tx, [batchId]);
  if (batch === undefined) throw unknownBatch(batchId);
  const state = batchStateAt(batch, now);
  if (!takesCommands(state)) throw notOpen(batchId, state, 'it takes no command');
  return batch;
}

const strangers = { name: 'batches-strangers', text: 'select id from nodes where id = any($1::text[]) and tenant_id <> $2 limit 1' };

/** The same check as at its creation (A-PKI-29): a machine may have changed hands since. */
async function assertOwner(tx: Executor, { id, tenantId }: StoredBatch, commands: readonly BatchedCommand[]): Promise<void> {
  const nodes = [...new Set(commands.map(({ nodeId }) => nodeId))];
  const [stranger] = await tx.query<{ id: string }>(strangers, [nodes, tenantId]);
  if (stranger === undefined) return;
  throw new ControlError('NOT_FOUND', `the tenant of node ${stranger.id} has no batch ${id}`, {
    details: { reason: 'other-tenant', nodeId: stranger.id, batchId: id },
  });
}

const any = new Uint8Array(0);

/** The leaf that is bound to the payload where the scope has it, else the one that admits any (BAT-019). */
async function membersOf(tx: Executor, { id }: StoredBatch, commands: readonly BatchedCommand[]): Promise<NewMember[]> {
  const leaves = commands.map((command) => {
    const { nodeId, kind } = command;
    const subject = subjectOf(command);
    const payloadSha256 = createHash('sha256').update(command.payload.value).digest();
    const hashOf = (digest: Uint8Array): Buffer => leafHash(id, { subject, kind, payloadSha256: digest });
    return { commandId: command.id, nodeId, kind, subject, payloadSha256, bound: hashOf(payloadSha256), unbound: hashOf(any) };
  });
  const indexes = await indexesOfLeaves(
    tx,
    id,
    leaves.flatMap(({ bound, unbound }) => [bound, unbound]),
  );
  return leaves.map(({ commandId, kind, subject, payloadSha256, bound, unbound }) => {
    const leafIndex = indexes.get(bound.toString('hex')) ?? indexes.get(unbound.toString('hex'));
    if (leafIndex !== undefined) return { commandId, leafIndex, payloadSha256 };
    throw new ControlError(
      'INVALID_INPUT',
      `command ${commandId}: ${kind} on ${subject} with this payload is not in the scope of batch ${id}`,
      {
        details: { reason: 'not-in-scope', batchId: id, kind, subject },
      },
    );
  });
}

function subjectOf({ nodeId, kind, payload }: BatchedCommand): string {
  const message = anyUnpack(payload, protocolRegistry);
  if (message === undefined) throw new ControlError('INTERNAL', `the payload of ${kind} was judged and does not decode`);
  return batchSubject({ nodeId, kind, payload: message });
}

/** true: held. An approved batch whose approvals the published set no longer takes gets nothing new (A-PKI-46). */
async function mustWait(tx: Executor, batch: StoredBatch, { trustDomain }: AppendToBatch): Promise<boolean> {
  if (batch.state === 'pending' || batch.waves !== null) return true;
  const quorum = await readPublishedQuorum(tx);
  if (!hasApprovers(quorum)) return false;
  const standing = await standingOf(tx, batch, { quorum, trustDomain });
  if (standing.have < standing.required) throw tooFewApprovals(batch.id, standing);
  return false;
}
