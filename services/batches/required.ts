/**
 * The early refusal of a destructive command without a batch (BAT-021 to BAT-025). It spares an honest caller a refusal by the
 * machine, which stays the judge (BAT-024): whoever gets around this check meets the machine's own count.
 */
import { harmOf } from '../../domain/commands/harm.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Executor } from '../../drizzle/client.ts';
import { hasApprovers, readPublishedQuorum } from '../published-quorum.ts';

export interface DestructiveCandidate {
  readonly request: { readonly id: string; readonly kind: string; readonly batchId?: string };
  /** Decoded, or as the JSON it is made of: what the machine will read in it (domain/commands/harm.ts). */
  readonly message: object;
}

/** Reads nothing for commands that need no batch. @throws INVALID_STATE (batch-required) naming the kind */
export async function assertBatched(db: Executor, commands: readonly DestructiveCandidate[]): Promise<void> {
  const bare = commands.find(({ request, message }) => harmOf(request.kind, message) !== 'none' && request.batchId === undefined);
  if (bare === undefined) return;
  const quorum = await readPublishedQuorum(db);
  if (!hasApprovers(quorum) || quorum.unbatchedDestructivePerHour > 0) return;
  const { id, kind } = bare.request;
  throw new ControlError(
    'INVALID_STATE',
    `command ${id}: ${kind} is destructive and ${quorum.approverThreshold} of ${quorum.approverKeys.length} approvers guard this fleet: create a batch first (POST /v1/batches, better-compute batch create) and give its id. Break-glass without a batch is BETTER_COMPUTE_UNBATCHED_PER_HOUR above 0, which the approvers must sign`,
    { details: { reason: 'batch-required', kind } },
  );
}
