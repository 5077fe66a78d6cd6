/** Where a rotation stands in the key bundle, and which rotation a starting workflow works on. */
import { ControlError } from '../domain/errors.ts';
import type { CommandRoots } from '../domain/rotation/stages.ts';
import { workflowIds } from '../temporal.config.ts';

export interface Planned {
  /** The workflow's own, or that of a terminated run it takes up. */
  readonly rotationId: string;
  readonly oldRoot: string | null;
  readonly newRoot: string | null;
  /** An abort is recorded: go back instead of forward. */
  readonly abort: { readonly actor: string; readonly reason: string } | null;
}

/**
 * A rotation that a terminated run of this workflow left half way is taken up: only one run exists at a time, so nobody shares
 * it. One that was begun by hand is not ours to continue.
 *
 * @throws ControlError INVALID_STATE
 */
export function planFrom(roots: CommandRoots, rotationId: string): Planned {
  const { rotation } = roots;
  if (rotation === null) return { rotationId, ...rootsOf(roots, rotationId), abort: null };
  const ours = rotation.id === rotationId || rotation.id.startsWith(`${workflowIds.rotateCommandRoot}/`);
  if (!ours) {
    throw new ControlError(
      'INVALID_STATE',
      `rotation ${rotation.id} was begun by hand (stage ${rotation.stage}): finish or abort it with better-compute pki rotate-command-root first`,
      { details: { reason: 'rotation-in-progress', stage: rotation.stage } },
    );
  }
  const abort = rotation.aborted ? { actor: 'system', reason: 'the abort was carried out by an earlier run' } : null;
  return { rotationId: rotation.id, ...rootsOf(roots, rotation.id), abort };
}

/** From where to where; for an aborted rotation the roles are exchanged in the bundle, and told here as they were planned. */
export function rootsOf(roots: CommandRoots, rotationId: string): { oldRoot: string | null; newRoot: string | null } {
  const { rotation } = roots;
  if (rotation === null || rotation.id !== rotationId) return { oldRoot: roots.signing, newRoot: null };
  return rotation.aborted
    ? { oldRoot: rotation.newRoot, newRoot: rotation.oldRoot }
    : { oldRoot: rotation.oldRoot, newRoot: rotation.newRoot };
}
