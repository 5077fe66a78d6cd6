/**
 * The steps of a command-root rotation on a bundle (ROT-001 to ROT-013, H-04): domain/rotation/stages.ts decides, this file
 * makes the key, keeps the floor of the trust version and drops what is no longer trusted. Gates on the fleet are the
 * caller's (domain/rotation/gates.ts).
 *
 * Every step answers the bundle it was given when it changes nothing, so a repeated step writes nothing.
 */
import { ControlError } from '../../domain/errors.ts';
import { judgeFleet, judgePublication } from '../../domain/rotation/gates.ts';
import { abortRotation, addRoot, dropRoot, type Step, switchRoot } from '../../domain/rotation/stages.ts';
import { type ExternalKey, formatSignerReference, parseSignerReference, successorReference } from '../signers/index.ts';
import { createCommandRoot, withCommandRoots } from './command-roots.ts';
import type { CommandRoot, PkiBundle } from './types.ts';

export interface BundleStep {
  readonly bundle: PkiBundle;
  readonly changed: boolean;
}

/** Longest reason and actor that a bundle keeps. */
const maxWords = 500;

/**
 * Puts a new root beside the current one and raises the trust version (ROT-006).
 *
 * The new root's key is kept where the old one's is: in the bundle, or by the same token or key service under another name.
 *
 * @param input.root a root made elsewhere
 * @param input.reference where the new key is kept instead (KEY-039): moves the root out of the bundle, or to another signer
 * @param input.keyAt gives the key of a reference, asked only when the step is due; default: the signers that the bundle reaches
 * @throws INVALID_STATE when another rotation is in progress, the bundle signs no commands, or the key is kept elsewhere and there
 *   is no keyAt; INVALID_INPUT when the root,
 *   or one with the same key, is already trusted (C14)
 */
export async function addCommandRoot(
  bundle: PkiBundle,
  input: { rotationId: string; now: number; root?: CommandRoot } & NewKeyPlace,
): Promise<BundleStep> {
  if (bundle.commandSigning === undefined) {
    throw new ControlError('INVALID_STATE', 'the key bundle has no command-signing root to rotate', {
      details: { reason: 'no-command-signing' },
    });
  }
  // Asked first with a name no certificate has: a step that will be refused, or repeats one, makes no key.
  const rehearsal = addRoot(bundle.commandRoots, { rotationId: input.rotationId, newRoot: '', now: input.now });
  if (!rehearsal.changed) return { bundle, changed: false };
  const root = input.root ?? (await newRoot(bundle, input));
  refuseKnownKey(bundle, root);
  const step = addRoot(bundle.commandRoots, { rotationId: input.rotationId, newRoot: root.id, now: input.now });
  return applied(bundle, step, { raise: true, added: [root] });
}

export interface NewKeyPlace {
  readonly reference?: string | undefined;
  readonly keyAt?: ((reference: string) => Promise<ExternalKey>) | undefined;
}

async function newRoot(
  bundle: PkiBundle,
  { rotationId, now, ...place }: { rotationId: string; now: number } & NewKeyPlace,
): Promise<CommandRoot> {
  const { trustDomain } = bundle;
  const reference = place.reference ?? successorOf(bundle, rotationId);
  if (reference === undefined) return createCommandRoot({ trustDomain, now });
  const keyAt = place.keyAt ?? bundle.signers?.create;
  if (keyAt !== undefined) return createCommandRoot({ trustDomain, now, external: await keyAt(reference) });
  throw new ControlError('INVALID_STATE', `the new root's key is kept by ${reference}, which this process does not use`, {
    details: { reason: 'key-external', key: reference },
  });
}

const successorOf = ({ commandSigning }: PkiBundle, rotationId: string): string | undefined =>
  commandSigning?.signerReference === undefined
    ? undefined
    : formatSignerReference(successorReference(parseSignerReference(commandSigning.signerReference), rotationId));

/** Lets workers sign under the new root while the old one stays trusted (ROT-007). @throws INVALID_STATE out of order */
export function switchCommandRoot(bundle: PkiBundle, input: { rotationId: string; now: number }): BundleStep {
  return applied(bundle, switchRoot(bundle.commandRoots, input), { raise: false });
}

/**
 * Stops trusting the old root, forgets its key and raises the trust version (ROT-008).
 *
 * @param input.root the root that was judged; another one by now is refused
 * @throws INVALID_STATE out of order, or before `opensAt` without a forced reason (A-PKI-21)
 */
export function dropCommandRoot(
  bundle: PkiBundle,
  input: { rotationId: string; now: number; root?: string; opensAt: number; forcedReason: string },
): BundleStep {
  return applied(bundle, dropRoot(bundle.commandRoots, input), { raise: true });
}

export interface AbortInput {
  readonly rotationId: string;
  readonly now: number;
  readonly actor: string;
  readonly reason: string;
  /** The version the deployment publishes now, as recorded; 0 before the first publication. */
  readonly recordedVersion: number;
}

/**
 * Takes a rotation back (H-04). After add, the content is one that was published and replaced before; daemons would keep
 * the new root (C12) unless it is ordered to be published again above the recorded version, which `republish` does.
 *
 * @throws INVALID_STATE after the drop, or when no such rotation is in progress
 */
export function abortCommandRotation(bundle: PkiBundle, input: AbortInput): BundleStep {
  const wasAdded = bundle.commandRoots.rotation?.stage === 'added';
  const step = applied(bundle, abortRotation(bundle.commandRoots, input), { raise: wasAdded });
  if (!step.changed || !wasAdded) return step;
  const version = Math.max(input.recordedVersion + 1, step.bundle.trustVersion);
  const republish = { version, reason: input.reason.slice(0, maxWords), actor: input.actor.slice(0, maxWords), at: input.now };
  return { changed: true, bundle: Object.freeze({ ...step.bundle, republish }) };
}

function applied(bundle: PkiBundle, step: Step, options: { raise: boolean; added?: readonly CommandRoot[] }): BundleStep {
  if (!step.changed) return { bundle, changed: false };
  const next = withCommandRoots(bundle, step.state, options.added ?? []);
  return { changed: true, bundle: options.raise ? Object.freeze({ ...next, trustVersion: bundle.trustVersion + 1 }) : next };
}

function refuseKnownKey(bundle: PkiBundle, root: CommandRoot): void {
  for (const known of bundle.commandRootsById.values()) {
    if (Buffer.from(known.spki).equals(root.spki)) {
      throw new ControlError('INVALID_INPUT', `root ${root.id} has the key of root ${known.id}: a rotation needs a new key`, {
        details: { reason: 'root-key-known' },
      });
    }
  }
}

/** ROT-030: the three steps by the names that other tooling uses. */
export { addCommandRoot as addTrustRoot, dropCommandRoot as removeTrustRoot };

export interface AcknowledgementFacts {
  readonly publication: Parameters<typeof judgePublication>[0];
  readonly fleet: Parameters<typeof judgeFleet>[0];
  readonly now: number;
}

/**
 * Whether the deployment publishes this bundle and every connected node holds that version: first the publication, then
 * the fleet (ROT-024, ROT-030).
 */
export function trustVersionAcknowledged({ publication, fleet, now }: AcknowledgementFacts): ReturnType<typeof judgeFleet> {
  const published = judgePublication(publication);
  if (published.kind !== 'open') return published;
  return judgeFleet(fleet, { version: publication.publishedVersion ?? 0, now });
}
