/**
 * The steps of a command-root rotation on the deployment's key bundle: add → switch → drop, and abort at every stage
 * (ROT-001 to ROT-013, H-04). Pure functions from one state to the next; whoever holds the bundle's lock calls them and
 * writes the answer back. Each step carries the rotation's id, so a repeated step changes nothing (`changed: false`) and a
 * step of another rotation is refused: two operators can never share one rotation by accident.
 *
 * What this file does not do: gates on the fleet (gates.ts), keys (pki/), storage.
 */
import { ControlError } from '../errors.ts';
import { showInstant } from '../time.ts';

export interface RootEntry {
  /** Lower-case hex of SHA-256 over the root's DER certificate. */
  readonly id: string;
  readonly addedAt: number;
}

export interface RemovedRootEntry {
  readonly id: string;
  /** 0 when it never signed. */
  readonly switchedAt: number;
  readonly removedAt: number;
  /** Empty unless an operator cut the overlap short. */
  readonly forcedReason: string;
}

export interface RotationInProgress {
  readonly id: string;
  readonly stage: 'added' | 'switched';
  readonly oldRoot: string;
  readonly newRoot: string;
  readonly addedAt: number;
  /** null until the switch. */
  readonly switchedAt: number | null;
  /** Set when an operator took the switch back: the old root signs again, the new one waits for its drop. */
  readonly aborted: boolean;
}

/** The rotation that ended last, so that a repeated last step is recognised. */
export interface RotationEnded {
  readonly id: string;
  readonly outcome: 'dropped' | 'aborted';
  readonly endedAt: number;
}

export interface CommandRoots {
  /** Id of the root that certifies new worker keys. */
  readonly signing: string;
  readonly roots: readonly RootEntry[];
  readonly rotation: RotationInProgress | null;
  readonly lastRotation: RotationEnded | null;
  /** Newest first, at most 16. */
  readonly removed: readonly RemovedRootEntry[];
}

export interface Step {
  readonly state: CommandRoots;
  readonly changed: boolean;
}

const removedKept = 16;

const refuse = (message: string, details: Record<string, unknown> = {}): never => {
  throw new ControlError('INVALID_STATE', message, { details });
};

const remove = (state: CommandRoots, entry: RemovedRootEntry): Pick<CommandRoots, 'roots' | 'removed'> => ({
  roots: state.roots.filter((root) => root.id !== entry.id),
  removed: [entry, ...state.removed].slice(0, removedKept),
});

/** Puts the new root beside the old one; workers go on signing under the old one (ROT-002). */
export function addRoot(state: CommandRoots, input: { rotationId: string; newRoot: string; now: number }): Step {
  if (state.rotation?.id === input.rotationId || state.lastRotation?.id === input.rotationId) return { state, changed: false };
  if (state.rotation !== null) {
    return refuse(`rotation ${state.rotation.id} is in progress (stage ${state.rotation.stage}): finish or abort it before a new one`, {
      reason: 'rotation-in-progress',
    });
  }
  if (state.roots.some((root) => root.id === input.newRoot)) {
    throw new ControlError('INVALID_INPUT', `root ${input.newRoot} is already trusted`, { details: { reason: 'root-known' } });
  }
  return {
    changed: true,
    state: {
      ...state,
      roots: [...state.roots, { id: input.newRoot, addedAt: input.now }],
      rotation: {
        id: input.rotationId,
        stage: 'added',
        oldRoot: state.signing,
        newRoot: input.newRoot,
        addedAt: input.now,
        switchedAt: null,
        aborted: false,
      },
    },
  };
}

/** Lets workers sign under the new root; the old one stays trusted (ROT-007). Gates are the caller's (gates.ts). */
export function switchRoot(state: CommandRoots, input: { rotationId: string; now: number }): Step {
  const rotation = inProgress(state, input.rotationId, 'switch');
  if (rotation === null || rotation.stage === 'switched') return { state, changed: false };
  return {
    changed: true,
    state: { ...state, signing: rotation.newRoot, rotation: { ...rotation, stage: 'switched', switchedAt: input.now } },
  };
}

/**
 * Stops trusting the old root (ROT-008).
 *
 * @param root what the caller judged: an abort exchanges the roles, and an attempt from before it must not take the other root
 * @param opensAt the earliest instant, from dropOpensAt (gates.ts)
 * @param forcedReason not empty: the operator answers for cutting the overlap short (A-PKI-21)
 */
export function dropRoot(
  state: CommandRoots,
  input: { rotationId: string; now: number; root?: string; opensAt: number; forcedReason: string },
): Step {
  const rotation = inProgress(state, input.rotationId, 'drop');
  if (rotation === null) return { state, changed: false };
  if (rotation.stage !== 'switched' || rotation.switchedAt === null) {
    return refuse(`drop before switch: rotation ${rotation.id} is at stage ${rotation.stage}`, { reason: 'out-of-order' });
  }
  if (input.root !== undefined && input.root !== rotation.oldRoot) {
    return refuse(`not dropping root ${input.root}: rotation ${rotation.id} was aborted since, it signs again`, {
      reason: 'roles-exchanged',
    });
  }
  const early = input.now < input.opensAt;
  if (early && input.forcedReason === '') {
    return refuse(`not dropping before ${showInstant(input.opensAt)}: commands signed under the old root may still be on their way`, {
      reason: 'drop-too-early',
      opensAt: input.opensAt,
    });
  }
  const entry = {
    id: rotation.oldRoot,
    switchedAt: rotation.switchedAt,
    removedAt: input.now,
    forcedReason: early ? input.forcedReason : '',
  };
  return {
    changed: true,
    state: {
      ...state,
      ...remove(state, entry),
      rotation: null,
      lastRotation: { id: rotation.id, outcome: rotation.aborted ? 'aborted' : 'dropped', endedAt: input.now },
    },
  };
}

/**
 * Takes a rotation back (H-04): after add, the new root leaves; after switch, workers sign under the old root again and the
 * new one stays trusted until it can be dropped like any former root, so nothing signed under it is rejected.
 */
export function abortRotation(state: CommandRoots, input: { rotationId: string; now: number }): Step {
  if (state.lastRotation?.id === input.rotationId) {
    return state.lastRotation.outcome === 'aborted'
      ? { state, changed: false }
      : refuse(`rotation ${input.rotationId} has dropped the old root: start a new rotation instead`, { reason: 'already-dropped' });
  }
  const { rotation } = state;
  if (rotation === null || rotation.id !== input.rotationId) {
    return refuse(`no rotation ${input.rotationId} is in progress`, { reason: 'no-rotation' });
  }
  if (rotation.stage === 'added') {
    const entry = { id: rotation.newRoot, switchedAt: 0, removedAt: input.now, forcedReason: '' };
    return {
      changed: true,
      state: {
        ...state,
        ...remove(state, entry),
        rotation: null,
        lastRotation: { id: rotation.id, outcome: 'aborted', endedAt: input.now },
      },
    };
  }
  if (rotation.aborted) return { state, changed: false };
  return {
    changed: true,
    state: {
      ...state,
      signing: rotation.oldRoot,
      // From here the roles are exchanged: the rotation's "old root" is the one that no longer signs.
      rotation: { ...rotation, oldRoot: rotation.newRoot, newRoot: rotation.oldRoot, switchedAt: input.now, aborted: true },
    },
  };
}

function inProgress(state: CommandRoots, rotationId: string, step: string): RotationInProgress | null {
  if (state.rotation === null) {
    if (state.lastRotation?.id === rotationId) return null;
    return refuse(`${step} without add: no rotation is in progress`, { reason: 'out-of-order' });
  }
  if (state.rotation.id !== rotationId) {
    return refuse(`rotation ${state.rotation.id} is in progress, not ${rotationId}`, { reason: 'other-rotation' });
  }
  return state.rotation;
}
